#!/usr/bin/env bash
# slurm-down.sh
#   End the jobs and the daemons that slurm-up.sh or slurm-net.sh started, and remove their state.
. "$(dirname "$0")/common.sh"
[ $# = 0 ] || usage
set -u
own_lab

stop() { # stop PID_FILE
  local pid
  pid=$(cat "$1" 2>/dev/null) || return
  kill "$pid" 2>/dev/null && tail --pid="$pid" -f /dev/null # until it has ended
}

for state in "$lab/slurm" "$lab/slurm-net"; do
  [ -e "$state/slurm.conf" ] || continue
  inside=
  [ "${state##*/}" = slurm-net ] && inside="$(dirname "$0")/netlab.sh sh 0"
  export SLURM_CONF=$state/slurm.conf
  # Jobs first: they end only while the daemons run.
  $inside scancel --user "$(id -un)" 2>/dev/null
  for _ in {1..40}; do
    [ -z "$($inside squeue --noheader 2>/dev/null)" ] && break
    sleep 0.25
  done
  for pid_file in "$state"/run/slurmd.*.pid "$state/run/slurmctld.pid"; do stop "$pid_file"; done
  rm -rf "$state"
done
stop "$lab/munge/munged.pid"
rm -rf "$lab/munge"
rmdir "$lab" 2>/dev/null # fails, as it should, while emulated nodes exist
true
