# Sourced by the scripts of the lab.
# shellcheck shell=bash disable=SC2034
lab=${TMPDIR:-/tmp}/scaffe-lab-$(id -u) # the folder of its state
PATH=$PATH:/usr/sbin:/sbin              # daemons on Debian

fail() {
  echo "${0##*/}: $*" >&2
  exit 2
}

usage() { # print the comment at the head of the script
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
  exit 2
}

need() { # need COMMAND PACKAGE
  command -v "$1" >/dev/null || fail "there is no $1 here; on Debian or Ubuntu: apt-get install --no-install-recommends $2"
}

own_lab() { # make the lab's folder, readable by this user only; fail where another user made it
  mkdir -m 700 "$lab" 2>/dev/null || true
  [ ! -L "$lab" ] && [ -d "$lab" ] && [ -O "$lab" ] || fail "$lab is not this user's own folder; remove it, or set TMPDIR"
  chmod 700 "$lab"
}
