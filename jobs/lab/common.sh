# Sourced by the scripts of the lab.
# shellcheck shell=bash disable=SC2034
lab=${TMPDIR:-/tmp}/scaffe-lab-$(id -u) # where its state is
PATH=$PATH:/usr/sbin:/sbin              # Debian keeps daemons there

fail() {
  echo "${0##*/}: $*" >&2
  exit 2
}

usage() { # print the comment that the script begins with
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
  exit 2
}

need() { # need COMMAND PACKAGE
  command -v "$1" >/dev/null || fail "there is no $1 here; on Debian or Ubuntu: apt-get install --no-install-recommends $2"
}

own_lab() { # make the lab's folder, private to this user; another user may have made one
  mkdir -m 700 "$lab" 2>/dev/null || true
  [ ! -L "$lab" ] && [ -d "$lab" ] && [ -O "$lab" ] || fail "$lab is not this user's own folder; remove it, or set TMPDIR"
  chmod 700 "$lab"
}
