#!/usr/bin/env bash
# Compile readers/datum.proto and scaffe/proto/caffe.proto to the Python modules beside them.
# With protoc 4.25 (grpcio-tools 1.62): its output works with every protobuf from 4.25 on.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
python3 -m venv "$tools"
"$tools/bin/pip" install --quiet 'grpcio-tools==1.62.3' 'setuptools<81'
"$tools/bin/python" -m grpc_tools.protoc -I. --python_out=. --pyi_out=. readers/datum.proto scaffe/proto/caffe.proto
