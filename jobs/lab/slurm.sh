# Sourced by slurm-up.sh and slurm-net.sh: functions for both clusters.
# shellcheck shell=bash
. "$(dirname "$0")/common.sh"
for tool in slurmctld slurmd sinfo; do need $tool slurm-wlm; done
need munged munge

# SLURM's daemons and clients authenticate by munge. The lab runs its own munged, with its own key.
munge_up() {
  own_lab
  local dir=$lab/munge
  mkdir -p "$dir" && chmod 755 "$dir"
  munge --no-input --socket "$dir/socket" >/dev/null 2>&1 && return
  (umask 077 && head -c 1024 /dev/urandom >"$dir/key")
  # --force: munged refuses a folder below /tmp, which is safe enough for a lab.
  munged --force --key-file "$dir/key" --seed-file "$dir/seed" --socket "$dir/socket" \
    --pid-file "$dir/munged.pid" --log-file "$dir/munged.log" 2>"$dir/stderr.log" || fail "munged: see $dir/munged.log"
}

# cluster NAME CONTROLLER: make the cluster's folder and the head of its slurm.conf; nodes and partition follow.
cluster() {
  state=$lab/$1
  export SLURM_CONF=$state/slurm.conf
  [ ! -e "$SLURM_CONF" ] || fail "$state is there already; slurm-down.sh removes it"
  mkdir -p "$state/controller" "$state/log" "$state/run"
  cat >"$SLURM_CONF" <<-CONF
	ClusterName=lab
	SlurmctldHost=$2
	SlurmctldPort=16817
	SlurmUser=$(id -un)
	SlurmdUser=$(id -un)
	AuthType=auth/munge
	# a job that is queued again starts when its credential has expired: by default after two minutes
	AuthInfo=socket=$lab/munge/socket,cred_expire=5
	CredType=cred/munge
	StateSaveLocation=$state/controller
	SlurmdSpoolDir=$state/spool.%n
	SlurmctldPidFile=$state/run/slurmctld.pid
	SlurmdPidFile=$state/run/slurmd.%n.pid
	SlurmctldLogFile=$state/log/slurmctld.log
	SlurmdLogFile=$state/log/slurmd.%n.log
	# no cgroups, no accounting, as many processors as the nodes claim
	ProctrackType=proctrack/linuxproc
	TaskPlugin=task/none
	SelectType=select/cons_tres
	SelectTypeParameters=CR_CPU
	SchedulerType=sched/builtin
	AccountingStorageType=accounting_storage/none
	JobAcctGatherType=jobacct_gather/none
	SwitchType=switch/none
	MpiDefault=none
	ReturnToService=2
	SlurmdParameters=config_overrides
	SchedulerParameters=batch_sched_delay=0,sched_interval=1
CONF
}

node() { # node NAME OPTIONS...: add a node
  echo "NodeName=$1 CPUs=8 RealMemory=8000 State=UNKNOWN ${*:2}" >>"$SLURM_CONF"
  mkdir -p "$state/spool.$1"
}

partition() { # partition NODES
  echo "PartitionName=main Nodes=$1 Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES" >>"$SLURM_CONF"
}

await_idle() { # await_idle NODES [PREFIX...]: wait until NODES nodes are idle
  local nodes=$1
  shift
  for _ in {1..200}; do
    [ "$("$@" sinfo --noheader --Node --format %t 2>/dev/null | grep -c '^idle$')" = "$nodes" ] && return
    sleep 0.25
  done
  fail "the nodes did not come up; see $state/log"
}
