#!/usr/bin/env bash
# overlap.sh [NODES [RATE [NET ...]]]   replay: the messages that each workflow hides, on NODES nodes with links of RATE
# overlap.sh real [NET ...]             2 nodes, the CPU computes, messages take half of SC-B's iteration
# overlap.sh simulated NODES RATE NET   what workflows take, and what scaffe simulate says, by the links' measured times
# overlap.sh pairs [NET ...]            SC-OBR and SC-B in 20 pairs, 2 ranks of this machine
# overlap.sh owners NODES [NET ...]     slices and DDP's form where communicating takes RATIOS of computing
# overlap.sh ddp PYTHON [NET ...]       2 nodes at 1 and 2 Gbit/s (RATES), and PyTorch DDP in another interpreter
#
# Nodes are emulated (jobs/lab/netlab.sh), one rank each. In replay layers take the times of a GPU of 5 TFLOP/s, with
# owners those that messages ask for, of nets with an eighth of the bytes; in the other modes each rank has a core.
# ARGS="..." adds options of jobs/bench/overlap.py. Needs root, and an environment with Open MPI: $SCAFFE_VENV, or the
# .venv that jobs/test.sh makes. PYTHON needs torch, mpi4py and scaffe's requirements.
# Rows are medians over the turns of one run; other work on the machine distorts them.
set -eu
cd "$(dirname "$0")/../.."
export PATH=${SCAFFE_VENV:-$PWD/.venv}/bin:$PATH PYTHONPATH=$PWD OMP_NUM_THREADS=1
export MALLOC_MMAP_THRESHOLD_=2000000000 MALLOC_TRIM_THRESHOLD_=2000000000
export NETLAB_ONE_SESSION=1
lab=jobs/lab/netlab.sh

quietly() { "$@" 2>&1 | grep -v '^I[0-9]'; }

batch() { [ "$1" = googlenet ] && echo 16 || echo 32; }

up() { # up NODES RATE
  $lab up "$@"
  trap '$lab down' EXIT
}

# shellcheck disable=SC2086
overlap() { # overlap NET OPTIONS...: over the nodes that are up
  quietly $lab run openmpi 1 python jobs/bench/overlap.py "$@" ${ARGS:-}
}

replay() { # replay NODES RATE NET...
  up "$1" "$2"
  for net in "${@:3}"; do overlap "$net" --iterations 5 --rounds 3; done
}

real() {
  local net rate
  for net; do
    up 2 0
    rate=$(overlap "$net" --batch "$(batch "$net")" --profile real --pin --link-rate | tail -n 1)
    echo "$net: links of $rate"
    up 2 "$rate"
    overlap "$net" --batch "$(batch "$net")" --profile real --pin
  done
}

# shellcheck disable=SC2086
simulated() { # simulated NODES RATE NET
  up "$1" "$2"
  quietly $lab run openmpi 1 python jobs/bench/simulated.py "$3" --batch 8 --rate 5e10 ${ARGS:-}
}

# shellcheck disable=SC2086
pairs() {
  local net
  for net; do
    quietly jobs/mpirun.sh -n 2 python jobs/bench/overlap.py "$net" --batch "$(batch "$net")" --profile real --pin \
      --pairs 20 ${ARGS:-}
  done
}

owners() { # owners NODES NET...
  local net ratio
  up "$1" 400mbit
  for net in "${@:2}"; do
    for ratio in ${RATIOS:-1.0 0.8 1.2}; do
      echo "Communicating alone takes $ratio of computing"
      overlap "$net" --width 0.35 --bucket-bytes 512K --profile "ratio:$ratio" --rounds 3 --runs "slices,DDP's form"
    done
  done
}

ddp() { # ddp PYTHON NET...
  local python=$1 net rate
  shift
  for rate in ${RATES:-1gbit 2gbit}; do
    up 2 "$rate"
    for net; do
      echo "Links of $rate"
      overlap "$net" --batch "$(batch "$net")" --profile real --pin \
        --runs 'SC-OBR:auto,slices,slices:hook,allreduce:auto,slices:bf16,allreduce:bf16'
      quietly $lab run openmpi 1 "$python" jobs/bench/ddp.py "$net" --batch "$(batch "$net")" --pin --interface eth0 \
        --master 10.77.0.1 --hook none,bf16
    done
  done
}

case ${1:-} in
  real) shift && real "${@:-alexnet}" ;;
  simulated)
    : "${4:?usage: overlap.sh simulated NODES RATE NET}"
    shift && simulated "$@"
    ;;
  pairs) shift && pairs "${@:-lenet}" ;;
  owners)
    : "${2:?usage: overlap.sh owners NODES [NET ...]}"
    shift
    if [ $# -gt 1 ]; then owners "$@"; else owners "$1" alexnet resnet50; fi
    ;;
  ddp)
    : "${2:?usage: overlap.sh ddp PYTHON [NET ...]}"
    shift
    if [ $# -gt 1 ]; then ddp "$@"; else ddp "$1" alexnet googlenet; fi
    ;;
  *)
    if [ $# -gt 2 ]; then replay "$@"; else replay "${1:-4}" "${2:-1gbit}" caffenet googlenet; fi
    ;;
esac
