#!/usr/bin/env bash
# netlab.sh up NODES [RATE [DELAY [SUPERNODES UPLINK]]]   emulate a cluster: nodes nl0, nl1, ... joined by a switch
# netlab.sh run openmpi|mpich PPN COMMAND    start PPN ranks on every node, with mpirun in node 0
# netlab.sh sh NODE COMMAND                  run a command in one node
# netlab.sh down                             remove the nodes
#
# Each node is a network namespace with its own host name and /etc/hosts. The machine's own network is not changed;
# files are shared. RATE is the rate of each link in tc's units (400mbit; 0: no limit), DELAY its one-way delay
# (0.1ms; needs a kernel with netem). SUPERNODES: so many switches with as many nodes each, each with one uplink of
# rate UPLINK to the others; below the sum of its nodes' rates it is over-subscribed.
# NETLAB_ONE_SESSION=1, for benchmarks: the ranks of all nodes are of one session. Where Linux groups processes by
# session (autogroup), a process yields to those of its own alone, so that a waiting rank would keep its core from those
# of other nodes for a time slice, 3 ms. mpirun then learns of a node's end at once, as over no network.
# NETLAB_MPIARGS: further arguments for mpirun. NETLAB_MPIRUN: another command in its place, such as
# "jobs/mpirun.sh --ft". Needs root.
. "$(dirname "$0")/common.sh"
set -eu
net=$lab/net
self=$(readlink -f "$0")

up() { # up NODES [RATE [DELAY [SUPERNODES UPLINK]]]
  local nodes=$1 rate=${2:-0} delay=${3:-0} supernodes=${4:-1} uplink=${5:-0} i
  [ "$nodes" -ge 1 ] && [ "$supernodes" -ge 1 ] && [ $((nodes % supernodes)) = 0 ] || usage
  [ "$(id -u)" = 0 ] || fail "network namespaces need root"
  down
  mkdir "$net"
  echo "127.0.0.1 localhost" >"$net/hosts"
  ip netns add nlswitch
  for ((i = 0; i < supernodes; i++)); do switch "br$i"; done
  if [ "$supernodes" -gt 1 ]; then
    switch core
    for ((i = 0; i < supernodes; i++)); do uplink "$i" "$uplink"; done
  fi
  for ((i = 0; i < nodes; i++)); do
    echo "10.77.0.$((i + 1)) nl$i" >>"$net/hosts"
    join "$i" "br$((i * supernodes / nodes))"
    shape "nl$i" eth0 "$rate" "$delay" # what the node sends
    shape nlswitch "port$i" "$rate" 0  # what it receives
  done
  echo "$nodes" >"$net/nodes"
}

switch() { # switch NAME
  ip -n nlswitch link add "$1" type bridge
  ip -n nlswitch link set "$1" up
}

uplink() { # uplink I RATE: join switch I and the core, at RATE in each direction
  ip -n nlswitch link add "up$1" type veth peer name "down$1"
  ip -n nlswitch link set "up$1" master "br$1" up
  ip -n nlswitch link set "down$1" master core up
  shape nlswitch "up$1" "$2" 0
  shape nlswitch "down$1" "$2" 0
}

join() { # join I SWITCH: make node I and plug it into the switch
  ip netns add "nl$1"
  ip -n nlswitch link add "port$1" type veth peer name eth0 netns "nl$1"
  ip -n nlswitch link set "port$1" master "$2" up
  ip -n "nl$1" addr add "10.77.0.$(($1 + 1))/24" dev eth0
  ip -n "nl$1" link set lo up
  ip -n "nl$1" link set eth0 up
  # BBR, where it is the default, drains a link for 200 ms at intervals, to measure it.
  ip netns exec "nl$1" tee /proc/sys/net/ipv4/tcp_congestion_control <<<reno >/dev/null
}

shape() { # shape NAMESPACE DEVICE RATE DELAY: limit what the device sends
  local add=(tc -n "$1" qdisc add dev "$2" root) rate=()
  [ "$3" = 0 ] || rate=(rate "$3")
  if [ "$4" != 0 ]; then
    "${add[@]}" netem delay "$4" "${rate[@]}" limit 20000 2>/dev/null || fail "no netem in this kernel: leave DELAY out"
  elif [ "$3" != 0 ]; then
    # The burst passes at the speed of memory: measure the rate with messages of 1 MB and more.
    "${add[@]}" tbf "${rate[@]}" burst 128kb latency 400ms
  fi
}

down() {
  local namespace
  for namespace in $(ip netns list | awk '$1 ~ /^nl([0-9]+|switch)$/ { print $1 }'); do ip netns del "$namespace"; done
  rm -rf "$net"
}

sh() { # sh NODE COMMAND...
  local name=nl$1
  shift
  enter "$name" "$@"
}

enter() { # enter NODE_NAME COMMAND...
  local name=$1
  shift
  # shellcheck disable=SC2016
  exec nsenter --net="/run/netns/$name" unshare --uts --mount /bin/sh -c \
    'hosts=$1; hostname "$2" && mount --bind "$hosts" /etc/hosts && shift 2 && exec "$@"' sh "$net/hosts" "$name" "$@"
}

agent() { # mpirun's replacement for ssh: [OPTIONS] NODE_NAME COMMAND_LINE
  while [ "${1#-}" != "$1" ]; do shift; done
  local name=$1
  shift
  enter "$name" /bin/sh -c "$*"
}

run() { # run openmpi|mpich PPN COMMAND...
  local mpi=$1 ppn=$2 more mpirun nodes
  shift 2
  nodes=$(cat "$net/nodes" 2>/dev/null) || fail "there are no nodes; netlab.sh up NODES makes them"
  read -ra more <<<"${NETLAB_MPIARGS:-}"
  read -ra mpirun <<<"${NETLAB_MPIRUN:-mpirun}"
  printf '#!/bin/sh\nexec "%s" agent "$@"\n' "$self" >"$net/agent"
  chmod +x "$net/agent"
  export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
  case $mpi in
    openmpi) run_openmpi "${more[@]}" "$@" ;;
    mpich) run_mpich "${more[@]}" "$@" ;;
    *) usage ;;
  esac
}

# Both MPIs use TCP only: their faster transports bypass the namespaces.
run_openmpi() {
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  sed -n "s/.* nl\(.*\)/nl\1 slots=$ppn/p" "$net/hosts" >"$net/hostfile"
  # Each node counts all cores as its own, so that ranks would spin instead of yielding.
  local session=()
  [ -z "${NETLAB_ONE_SESSION:-}" ] || session=(--leave-session-attached)
  enter nl0 "${mpirun[@]}" "${session[@]}" \
    --prtemca plm ssh --prtemca plm_ssh_agent "$net/agent" --hostfile "$net/hostfile" \
    --map-by "ppr:$ppn:node:oversubscribe" --bind-to none --mca pml ob1 --mca btl self,sm,tcp \
    --mca btl_tcp_if_include eth0 --mca osc ^ucx --mca mpi_yield_when_idle 1 "$@"
}

run_mpich() {
  sed -n "s/.* nl\(.*\)/nl\1:$ppn/p" "$net/hosts" >"$net/hostfile"
  export MPIR_CVAR_CH4_NETMOD=ofi FI_PROVIDER=tcp FI_TCP_IFACE=eth0
  enter nl0 "${mpirun[@]}" -launcher ssh -launcher-exec "$net/agent" -f "$net/hostfile" \
    -n $((nodes * ppn)) -ppn "$ppn" "$@"
}

for tool in ip:iproute2 tc:iproute2 nsenter:util-linux unshare:util-linux; do need "${tool%:*}" "${tool#*:}"; done
case ${1:-} in
  up) [[ $# -ge 2 && $# -le 6 && $# != 5 ]] || usage ;;
  run) [ $# -ge 4 ] || usage ;;
  sh) [ $# -ge 3 ] || usage ;;
  down) [ $# = 1 ] || usage ;;
  agent) ;;
  *) usage ;;
esac
own_lab
"$@"
