#!/usr/bin/env bash
# Check the form of all source: ruff, mypy and shellcheck, in the versions of the extra `lint`.
set -u
. "$(dirname "$0")/venv.sh"
install test,docs,lint # mypy reads the libraries that the tests bring
cd "$root" || exit

failed=0
check() {
  echo "+ ${*:1:4}"
  "$@" || failed=1
}

mapfile -t scripts < <(git ls-files '*.sh' '*.sbatch' .ci/run)
check ruff check .
check ruff format --check .
check mypy
check shellcheck --severity=warning --external-sources --source-path=SCRIPTDIR "${scripts[@]}"
exit $failed
