"""What test_bad_input.py feeds to the command line: wrong inputs, each with what the one line of error must say.

A row is made in a copy of a folder that has net.prototxt, solver.prototxt (4 iterations, batches of 8), db (an LMDB of
20 records of 1 x 4 x 4), snap_iter_4.caffemodel, last.solverstate, both also in HDF5 (.h5), w.caffemodel and
s.solverstate, which are the same without checksums, a list of images, a window file, and lists of HDF5 files. Add a row
to the list that it belongs to; `said` is found in the line, `.*` standing for anything.
"""

# ruff: noqa: E501  a row is a line
# fmt: off

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import log_specimens
import nets
import numpy as np
from bad_input import edit
from PIL import Image

from readers import encode, write_lmdb
from scaffe.proto import Datum, NetParameter, SolverState


class Wrong(NamedTuple):
    """A command that must fail, what is done to the folder before it, and what is said."""

    name: str
    command: str | list[str]
    said: str
    make: Callable[[], object] = lambda: None
    alone: bool = False  # met by the rank that reads the record: it ends the job
    over_ranks: bool = False  # right on one rank


SPREAD = ("train", "test", "time", "extract-features", "compute-image-mean")


def is_tool(words: list[str]) -> bool:
    """Say whether only the first rank works, so that the others may end with 0."""
    return words[:1] not in [[name] for name in SPREAD]


TRAIN = "train --solver solver.prototxt"


def write(path: str, content: str | bytes) -> Callable[[], object]:
    return lambda: Path(path).write_bytes(content.encode() if isinstance(content, str) else content)


# The command line.

FLAGS = [
    ("--gpu 0", "no COMMAND is given, such as scaffe train, but flags; see scaffe --help"),
    ("tarin", "invalid choice: 'tarin'; did you mean 'train'? See scaffe --help"),
    ("brew", "invalid choice: 'brew' (choose from 'train', 'test'"),
    ("train", "arguments are required: --solver"),
    (f"{TRAIN} --speed 9", "unrecognized arguments: --speed 9; see scaffe train --help"),
    (f"{TRAIN} -wieghts w.caffemodel", "unrecognized arguments: -wieghts w.caffemodel; did you mean '--weights'? See scaffe train --help"),
    (f"{TRAIN} --preset scafe", "invalid choice: 'scafe'; did you mean 's-caffe'?"),
    (f"{TRAIN} --preset horovod", "invalid choice: 'horovod' (choose from 'numa-caffe'"),
    (f"{TRAIN} --reduce chian", "unknown algorithm 'chian'; .*; did you mean 'chain'?"),
    (f"{TRAIN} --weights ,,", "weights ',,' have an empty name between commas; write a.caffemodel,b.caffemodel"),
    (f"{TRAIN} --weights w.caffemodel,", "weights 'w.caffemodel,' have an empty name"),
    ("test --model net.prototxt --weights ,,", "weights ',,' have an empty name between commas"),
    (f"{TRAIN} --weights net.prototxt", "net.prototxt: a text file where weights are expected; give a .caffemodel"),
    (f"{TRAIN} --snapshot net.prototxt", "net.prototxt: a text file where a solver state is expected; give a .solverstate"),
    (f"{TRAIN} more", "unrecognized arguments: more"),
    (f"{TRAIN} --scal medium", "--scal.*'medium'"),
    (f"{TRAIN} --keep-snapshots -1", "keep_snapshots must be 0 or more, got -1"),
    (f"{TRAIN} --keep-snapshots few", "--keep-snapshots.*'few'"),
    (f"{TRAIN} --snapshot-budget some", "--snapshot-budget.*'some'"),
    (f"{TRAIN} --snapshot-budget 100%", "snapshot_budget must be a share of the time below 100%, got 1"),
    (f"{TRAIN} --snapshot-budget=-1%", "snapshot_budget must be a share of the time below 100%, got -0.01"),
    (f"{TRAIN} --snapshot-budget 3% --no-snapshot-async", "snapshot_budget: its snapshots are written in the background"),
    (f"{TRAIN} --snapshot-budget nan", "snapshot_budget must be a share of the time below 100%, got nan"),
    (f"{TRAIN} --spares 1", "--spares 1: spares need --on-rank-loss shrink"),
    (f"{TRAIN} --min-ranks -1", "min_ranks must be 1 or more, got -1"),
    (f"{TRAIN} --launch-groups 99", "--launch-groups 99: each rank has 1 instance(s); give as many groups or fewer, or --instances"),
    (f"{TRAIN} --instances 2 --oversubscribe --launch-groups 3", "--launch-groups 3: each rank has 2 instance(s); give as many groups or fewer"),
    (f"{TRAIN} --min-ranks 9", "--min-ranks 9: the launch has .* rank(s) that train; start more ranks"),
    (f"{TRAIN} --gpu first", "--gpu takes 'all' or ids such as 0,2, got 'first'"),
    (f"{TRAIN} --gpu 0 --device cpu", "--device cpu and --gpu 0 say two things"),
    (f"{TRAIN} --device gpu", "--device.*'gpu'"),
    (f"{TRAIN} --sigint-effect ignore", "--sigint-effect.*'ignore'"),
    (f"{TRAIN} --sighup_effect restart", "--sighup-effect.*'restart'"),
    (f"{TRAIN} --engine mkl", "--engine.*'mkl'"),
    (f"{TRAIN} --compute fp8", "--compute.*'fp8'"),
    (f"{TRAIN} --compute replay:no.json", "no.json: no such file"),
    (f"{TRAIN} --compute replay:net.prototxt", "net.prototxt is no profile of scaffe time --profile"),
    (f"{TRAIN} --plan db", "db: is a directory"),
    (f"{TRAIN} --plan image.png", "plan 'image.png': is a picture, which would be replaced"),
    (f"{TRAIN} --plan list", "list, line 1: expected 'work: way'"),
    (f"{TRAIN} --plan-seconds -1", "plan_seconds must be 0 or more, got -1"),
    (f"{TRAIN} --workspace-bytes lots", "--workspace-bytes.*'lots'"),
    (f"{TRAIN} --graphs maybe", "--graphs.*'maybe'"),
    (f"{TRAIN} --graphs on", "--graphs on takes a GPU"),
    (f"{TRAIN} --threads -1", "threads must be 0 to .*, got -1"),
    (f"{TRAIN} --threads 1000000", "threads must be 0 to .*, got 1000000"),
    (f"{TRAIN} --threads two", "--threads.*'two'"),
    (f"{TRAIN} --level 99999999999", "--level.*whole number of 32 bits, got '99999999999'"),
    (f"{TRAIN} --level one", "--level.*whole number of 32 bits, got 'one'"),
    (f"{TRAIN} --workflow SC-X", "--workflow.*'SC-X'"),
    (f"{TRAIN} --sync never", "--sync.*'never'"),
    (f"{TRAIN} --reduce xyz", "unknown algorithm 'xyz'; known are chain"),
    (f"{TRAIN} --reduce leaders-xyz", "unknown algorithm 'xyz'"),
    (f"{TRAIN} --supernodes vm;vm,a", "supernodes: host vm is in two of them, number 0 and 1"),
    (f"{TRAIN} --supernodes ;", "supernodes: '' is not a host name; expected hosts as in 'n0,n1;n2,n3'"),
    (f"{TRAIN} --supernodes a,b;c/d", "supernodes: 'c/d' is not a host name"),
    (f"{TRAIN} --supernodes rack(", "supernodes: the pattern 'rack(' is invalid: missing )"),
    (f"{TRAIN} --supernodes (?:n)", "supernodes: the pattern '(?:n)' has no part in parentheses"),
    (f"{TRAIN} --reduce ring", "reduce has no algorithm 'ring'"),
    (f"{TRAIN} --reduce cb", "'cb' needs a chain size"),
    (f"{TRAIN} -verbose", "unrecognized arguments: -verbose"),
    (f"{TRAIN} -flagfile no", "--flagfile no: no such file"),
    (f"{TRAIN} --flagfile=db", "--flagfile db: is a directory"),
    (f"{TRAIN} --fromenv no_such_flag", "--fromenv no-such-flag: the environment has no FLAGS_no_such_flag"),
    (f"{TRAIN} --undefok=speed --spede 9", "unrecognized arguments: --spede"),
    ("train_net solver.prototxt", "train_net is one of Caffe's deprecated tools: use scaffe train --solver=FILE"),
    (f"{TRAIN} --instances 1024 --oversubscribe", "1024 instances for a batch of .*; ask for at most"),
    (f"{TRAIN} --instances 1025 --oversubscribe", "instances must be 1024 or fewer, and x:C have 1024 cores or fewer; got '1025'"),
    (f"{TRAIN} --instances {'9' * 5000}", "instances must be 1024 or fewer"),
    (f"{TRAIN} --instances x:1025 --oversubscribe", "instances must be 1024 or fewer, and x:C have 1024 cores or fewer; got 'x:1025'"),
    (f"{TRAIN} --chain-size -2", "chain_size must be 0 or more, got -2"),
    (f"{TRAIN} --chunk-bytes -1", "chunk_bytes must be 0 or more, got -1"),
    (f"{TRAIN} --chunk-bytes 4M", "--chunk-bytes.*'4M'"),
    (f"{TRAIN} --bucket-bytes few", "bucket_bytes must be bytes such as 4M, inf or auto; got 'few'"),
    (f"{TRAIN} --bucket-bytes nan", "bucket_bytes must be bytes such as 4M, inf or auto; got 'nan'"),
    (f"{TRAIN} --drive sideways", "--drive.*'sideways'"),
    (f"{TRAIN} --owners all", "--owners.*'all'"),
    (f"{TRAIN} --owners spread --sync allreduce", "--owners spread with --sync allreduce: there every rank updates"),
    (f"{TRAIN} --owners slices --on-rank-loss shrink --instances auto", "shrink and --instances auto: give a number"),
    (f"{TRAIN} --owners spread --mirror-every 2", "--owners spread with --mirror-every: .* leave one out"),
    (f"{TRAIN} --owners slices --reduce cb", "--reduce: .*reduce_scatter"),
    (f"{TRAIN} --gradient-numbers int4", "--gradient-numbers.*'int4'"),
    (f"{TRAIN} --gradient-numbers bf16 --reduce mpi", "--gradient-numbers bf16 with --reduce mpi: schedules alone"),
    (f"{TRAIN} --gradient-numbers bf16 --reduce leaders-chain", "with --reduce leaders-chain: schedules alone"),
    (f"{TRAIN} --error-feedback on", "--error-feedback on with --gradient-numbers float32: nothing is rounded"),
    (f"{TRAIN} --gradient-numbers int8 --on-rank-loss shrink", "error feedback and --on-rank-loss shrink: .* lost rank"),
    (f"{TRAIN} --broadcast-numbers tf32", "--broadcast-numbers.*'tf32'"),
    (f"{TRAIN} --broadcast-numbers bf16", "--broadcast-numbers bf16 with --compute float32"),
    (f"{TRAIN} --broadcast-numbers bf16 --compute bf16 --sync allreduce", "--broadcast-numbers bf16 with --sync allreduce"),
    (f"{TRAIN} --stall-seconds -1", "stall_seconds must be 0 (off) or more, got -1"),
    (f"{TRAIN} --stall-seconds 1e-9", "stall_seconds must be 0 (off), or 0.1 or more, got 1e-09"),
    (f"{TRAIN} --stall-seconds nan", "stall.*nan"),
    (f"{TRAIN} --stall-seconds soon", "--stall-seconds.*'soon'"),
    (f"{TRAIN} --stall wait", "--stall.*'wait'"),
    (f"{TRAIN} --stall say --stall-abort", "stall 'say' and stall_abort, which is stall 'abort': leave one of them out"),
    (f"{TRAIN} --stall shrink", "--stall shrink without --on-rank-loss shrink"),
    (f"{TRAIN} --stall shrink --on-rank-loss shrink --stall-seconds 0", "--stall shrink with --stall-seconds 0"),
    (f"{TRAIN} --stall abort --stall-seconds 0", "--stall abort with --stall-seconds 0"),
    (f"{TRAIN} --stall-abort --stall-seconds 0", "--stall abort with --stall-seconds 0"),
    (f"{TRAIN} --readers both", "--readers.*'both'"),
    (f"{TRAIN} --reader-threads -1", "reader threads must be 0 to .*, got -1"),
    (f"{TRAIN} --reader-threads 1000000", "reader threads must be 0 to .*, got 1000000"),
    (f"{TRAIN} --prefetch -1", "prefetch.*-1"),
    (f"{TRAIN} --shuffle some", "shuffle.*'some'"),
    (f"{TRAIN} --shuffle block:0", "shuffle.*block:0"),
    (f"{TRAIN} --shuffle block:x", "shuffle.*block:x"),
    (f"{TRAIN} --bad-records ignore", "--bad-records.*'ignore'"),
    (f"{TRAIN} --max-bad-records 2", "max_bad_records is a fraction, 0 to 1; got 2"),
    (f"{TRAIN} --max-bad-records nan", "max_bad_records is a fraction, 0 to 1; got nan"),
    (f"{TRAIN} --timeline no/t.json", "timeline 'no/t.json': no such folder: no"),
    (f"{TRAIN} --timeline db", "timeline 'db': is a folder; name a file"),
    (f"{TRAIN} --tensorboard net.prototxt", "tensorboard 'net.prototxt': file exists"),
    (f"{TRAIN} --tensorboard net.prototxt/runs", "tensorboard 'net.prototxt/runs': not a directory"),
    (f"{TRAIN} --metrics no/run.prom", "metrics 'no/run.prom': no such folder: no"),
    (f"{TRAIN} --metrics run.txt", "metrics 'run.txt': a node exporter reads FILE.prom alone; give it that suffix"),
    (f"{TRAIN} --measure-every -1", "measure_every must be 0 (the solver's display) or more, got -1"),
    (f"{TRAIN} --snapshot no", "no: no such file"),
    (f"{TRAIN} --weights no", "no: no such file"),
    (f"{TRAIN} --weights w.caffemodel,no", "no: no such file"),
    (f"{TRAIN} --snapshot s.solverstate --weights w.caffemodel", "not both"),
    (f"{TRAIN} --run-config no.toml", "no.toml: no such file"),
    ("train --solver no", "no: no such file"),
    ("train --solver db", "db: is a directory"),
    ("train --solver net.prototxt", "net.prototxt: a net where a solver is expected; give the prototxt that names it as net"),
    ("train --solver w.caffemodel", "w.caffemodel: not a prototxt"),
    ("train --solver image.png", "image.png: not a prototxt: a binary file"),
    ("test --model net.prototxt", "arguments are required: --weights"),
    ("test --model no --weights w.caffemodel", "no: no such file"),
    ("test --model solver.prototxt --weights w.caffemodel", "solver.prototxt: a solver where a net is expected; give the file that it names as net"),
    ("test --model net.prototxt --weights no", "no: no such file"),
    ("test --model net.prototxt --weights net.prototxt", "net.prototxt: a text file where weights are expected"),
    ("test --model net.prototxt --weights w.caffemodel --iterations 0", "--iterations must be 1 or more, got 0"),
    ("test --model net.prototxt --weights w.caffemodel --iterations -3", "--iterations must be 1 or more, got -3"),
    ("test --model net.prototxt --weights w.caffemodel --instances 1024", "1024 instances need 1024 cores, and this rank has"),
    ("time --model net.prototxt --instances 0", "instances must be a number, numa, core, x:C"),
    ("time --model net.prototxt --threads 1000000", "threads must be 0 to"),
    ("time --model no", "no: no such file"),
    ("time --model net.prototxt --phase BOTH", "--phase.*'BOTH'"),
    ("time --model net.prototxt --iterations 1.5", "--iterations.*'1.5'"),
    ("time --model net.prototxt --iterations 1 --profile no/p.json", "profile 'no/p.json': no such folder: no"),
    ("time --model net.prototxt --iterations 1 --weights s.solverstate", "a solver state where weights are expected"),
    ("extract-features w.caffemodel net.prototxt ip f 1 --instances x:1024", "an instance on each 1024 cores needs a domain with 1024"),
    ("extract-features no net.prototxt ip f 1", "no: no such file"),
    ("extract-features w.caffemodel net.prototxt ip f,g 1", "1 blob(s) ip for 2 output(s) f,g: name one for each"),
    ("extract-features w.caffemodel net.prototxt fc7 f 1", "no blob 'fc7'"),
    ("extract-features w.caffemodel net.prototxt ip no/f 1", "no/f: can't be written: no such file"),
    ("extract-features w.caffemodel net.prototxt ip f 0", "1 or more, got 0"),
    ("extract-features w.caffemodel net.prototxt ip f 1 --db csv", "--db.*'csv'"),
    ("extract-features w.caffemodel net.prototxt ip f 1 lmdb GPU first", "expected a GPU's number such as 0"),
    ("extract-features w.caffemodel net.prototxt ip f 1 lmdb CPU --gpu 0", "CPU and a GPU's flag say two things"),
    ("extract-features w.caffemodel net.prototxt ip f 1 lmdb GPU --device cpu", "GPU and --device or --gpu say two things"),
    ("convert-imageset . no db2", "no: no such file"),
    ("convert-imageset . net.prototxt db2", "net.prototxt:2: expected 'FILE LABEL'"),
    ("convert-imageset . list db", "db exists already"),
    ("convert-imageset . list db2 --shards 0", "expected 1 shard or more"),
    ("convert-imageset . list db2 --resize-width 4", "expected both a resize height and width, got 0 and 4"),
    ("convert-imageset . list db2 --resize-width -4 --resize-height -4", "height and width, got -4 and -4"),
    ("convert-imageset . list db2 --encode-type gif", "unknown encode type 'gif'"),
    ("convert-imageset . list db2 --threads -1", "threads must be 0 to .*, got -1"),
    ("convert-imageset . list db2 --threads 1000000", "threads must be 0 to"),
    ("convert-imageset . list db2 -gray=maybe", "expected true or false, got 'maybe'"),
    ("convert-imageset . list db2 --backend rocksdb", "--backend.*'rocksdb'"),
    ("convert-imageset . list db2 --backend leveldb --shards 2", "only an LMDB has shards: leave out the 2 shards"),
    ("convert-imageset . list db --backend leveldb", "db exists already"),
    ("convert-mnist net.prototxt solver.prototxt mnist", "net.prototxt: expected an idx file of bytes"),
    ("convert-mnist net.prototxt solver.prototxt mnist --siamese", "net.prototxt: expected an idx file of bytes"),
    ("convert-mnist no no mnist", "no: no such file"),
    ("convert-cifar10 . cifar", "data_batch_1.bin: no such file"),
    ("compute-image-mean no mean.binaryproto", "no: the LMDB or LevelDB can't be opened"),
    ("compute-image-mean db no/mean.binaryproto", "no/mean.binaryproto: no such folder: no"),
    ("inspect-db no", "no: the LMDB or LevelDB can't be opened"),
    ("inspect-db list", "list: expected a database's folder, got a file"),
    ("inspect-db db --threads 1000000", "threads must be 0 to"),
    ("inspect-db synthetic:3", "synthetic:3: expected synthetic:RECORDSxCxHxW"),
    ("inspect-db synthetic:0x1x4x4:2", "synthetic:0x1x4x4:2: expected numbers of 1 or more"),
    ("inspect-db synthetic:99999999999999999999x1x4x4:2", "synthetic:99999999999999999999x1x4x4:2: expected numbers below"),
    ("inspect-db db --plot sheet.jpg", "sheet.jpg: expected the name of a .png file"),
    ("inspect-db db --plot sheet.png --images 0", "--images must be 1 or more, got 0"),
    ("upgrade-net no new.prototxt", "no: no such file"),
    ("upgrade-net w.caffemodel.h5 new.prototxt", "an HDF5 file has no old forms to upgrade"),
    ("upgrade-net image.png new.prototxt", "image.png: not a binary NetParameter"),
    ("upgrade-net net.prototxt no/new.prototxt", "no/new.prototxt: .*no such f"),
    ("upgrade-solver net.prototxt new.prototxt", "net.prototxt: a net where a solver is expected"),
    ("classify image.png --model deploy.prototxt --weights w.caffemodel --instances 1024", "1024 instances need 1024 cores"),
    ("classify no.png --model deploy.prototxt --weights w.caffemodel", "image no.png: no such file"),
    ("classify list --model deploy.prototxt --weights w.caffemodel", "image list can't be decoded"),
    ("classify image.png --model deploy.prototxt --weights w.caffemodel --mean no.npy", "mean file no.npy: no such file"),
    ("classify image.png --model deploy.prototxt --weights w.caffemodel --mean blue", "--mean blue: expected a"),
    ("classify image.png --model deploy.prototxt --weights w.caffemodel --mean 1,2", "input 'data' .*mean of shape (2, 1, 1) .*channels"),
    ("classify image.png --model deploy.prototxt --weights w.caffemodel --labels image.png", "image.png: not a text file"),
    ("classify image.png --model deploy.prototxt --weights w.caffemodel --images-dim 4", "--images-dim.*'4'"),
    ("classify image.png --model deploy.prototxt --weights w.caffemodel --channel-swap 0,0,1", "expected an order of channels such as 2,1,0, got '0,0,1'"),
    ("detect no.csv out.csv --model deploy.prototxt --weights w.caffemodel", "no.csv: no such file"),
    ("detect list out.csv --model deploy.prototxt --weights w.caffemodel", "list: expected a .csv file of windows"),
    ("export-onnx net.prototxt out.onnx", "layer 'images' (Data): a model's data are its inputs; give the deploy net"),
    ("export-onnx deploy.prototxt w.caffemodel w.caffemodel", "w.caffemodel': is an input of this command"),
    ("import-onnx no.onnx net", "no.onnx: no such file"),
    ("import-onnx image.png net", "image.png: no valid ONNX model"),
    ("fine-tune no", "no: no such folder, or list of pictures"),
    ("fine-tune db", "db: expected a folder of pictures for each of several classes, but there is none"),
    ("fine-tune net.prototxt", "net.prototxt:7: expected 'FILE CLASS', got '}'"),
    ("draw-net no net.dot", "no: no such file"),
    ("draw-net net.prototxt net.gif", "net.gif: .*known format.*.png .svg"),
    ("draw-net net.prototxt net.dot --rankdir UP", "--rankdir.*'UP'"),
    ("models alexnot", "unknown model 'alexnot'; did you mean 'alexnet'?"),
    ("models transformer", "unknown model 'transformer'; known models: .*alexnet"),
    ("extract-features w.caffemodel net.prototxt pi f 1", "no blob 'pi' in net 'SoftmaxRegression'; did you mean 'ip'?"),
    ("models lenet --batch 0", "batch must be 1 or more, got 0"),
    ("models lenet --classes -1", "classes must be 1 or more, got -1"),
    ("timeline no.json", "no.json: no such file"),
    ("timeline net.prototxt", "net.prototxt: not a timeline: no JSON at line 2"),
    ("timeline image.png", "image.png: not a timeline, but a binary file"),
    ("plot-log no out.png", "no: no such file"),
    ("plot-log net.prototxt out.png", "net.prototxt: no log of training: it has no line such as"),
    ("plot-log net.prototxt", "expected the picture's name behind the logs.*got net.prototxt"),
    ("plot-log net.prototxt out.png --x epochs", "--x.*'epochs'"),
    ("plot-log net.prototxt out.png --smooth 0", "expected a number of rows, 1 or more, got '0'"),
    ("watch no --once", "no: no such file"),
    ("watch net.prototxt --once", "net.prototxt: no log of training: it has no line such as"),
    ("watch net.prototxt --interval 0", "expected seconds, above 0 and at most 3600, got '0'"),
    ("simulate-instances no.json", "no.json: no such file"),
    ("simulate-instances net.prototxt", "net.prototxt is no profile of scaffe time --profile"),
    ("simulate-instances net.prototxt --cores 7", "7 cores can't be divided over 2 domains"),
    ("simulate --net lenet --ranks 1000000000000 --best --cluster ndr", "--ranks must be 1000000000 or less, got 1000000000000"),
    ("simulate --net lenet --ranks 2 --cluster no", "unknown cluster 'no'; known: 8280 cluster-a .*, or the path of a .toml file"),
    ("simulate --net lenet --ranks 2 --cluster clusterb", "unknown cluster 'clusterb'; did you mean 'cluster-b'?"),
    ("simulate --net lenet --ranks 2 --cluster net.prototxt.toml", "net.prototxt.toml: no such file"),
    ("device-query --gpu first", "--gpu takes .*'first'"),
]

# What is right on one rank.

OVER_RANKS = [
    (f"{TRAIN} --supernodes no-host-of-ours", "supernodes: host .* is in none of 'no-host-of-ours'"),
    (f"{TRAIN} --supernodes no-(host)", "supernodes: host .* does not match the pattern 'no-(host)'"),
    (f"{TRAIN} --supernodes slurm", "SLURM_TOPOLOGY_ADDR and .* are not set; start with srun, or name the hosts"),
]

# A file of settings, cluster.toml.

SETTINGS = [
    ("workflow = ", "cluster.toml: Invalid value"),
    ("speed = 9", "cluster.toml: unknown key 'speed' in [run]; known: workflow sync"),
    ("chain-sizes = 9", "cluster.toml: unknown key 'chain-sizes' in [run]; did you mean 'chain-size'?"),
    ("[computes]\nthreads = 2", "cluster.toml: unknown table [computes]; did you mean '[compute]'?"),
    ('workflow = "SC-X"', "cluster.toml: unknown workflow 'SC-X'"),
    ('workflow = "sc_obr"', "cluster.toml: unknown workflow 'sc_obr'; did you mean 'SC-OBR'?"),
    ("workflow = 3", "cluster.toml: workflow must be a string, got 3"),
    ('chain-size = "8"', "cluster.toml: chain-size must be a whole number, got '8'"),
    ("chunk-bytes = 1.5", "cluster.toml: chunk-bytes must be a whole number, got 1.5"),
    ("chain-size = -1", "cluster.toml: chain_size must be 0 or more, got -1"),
    ('bucket-bytes = "some"', "cluster.toml: bucket_bytes must be bytes"),
    ('bucket-bytes = true', "cluster.toml: bucket_bytes must be bytes .*'True'"),
    (b"\xff\xfe", "cluster.toml: .*utf-8"),
    (r'supernodes = "a\u0000"', r"supernodes: 'a\x00' is not a host name"),
    (r'reduce = "a\u0000"', r"unknown algorithm 'a\x00'"),
    ("supernodes = 3", "cluster.toml: supernodes must be a string, got 3"),
    ('supernodes = [["vm"], ["vm", "a"]]', "supernodes: host vm is in two of them, number 0 and 1"),
]

# One edit of solver.prototxt: old, new, said.

SOLVERS = [
    ("momentum: 0.9", "momentun: 0.9", 'solver.prototxt:5: .*no field named "momentun"; did you mean \'momentum\'?'),
    ("momentum: 0.9", "weight-decay: 0.1", 'has no field named "weight-decay"; did you mean \'weight_decay\'?'),
    ("momentum: 0.9", "type: Adam", "Expected string but found: 'Adam'; write it in quotes, \"Adam\""),
    ("momentum: 0.9", "type: “Adam”", "solver.prototxt:5: .*; write plain quotes"),
    ("momentum: 0.9", 'solver_mode: "GPU"', 'solver.prototxt:5: .*has no value named "GPU"; write it without quotes, GPU'),
    ("momentum: 0.9", "// momentum: 0.9", "solver.prototxt:5: .*; a comment begins with #"),
    ("max_iter: 4", "max_iter: 10,000", "solver.prototxt:6: .*; a comma ends a value: write the field before each value, and numbers without commas"),
    ('net: "net.prototxt"', r'net: "C:\nets\x.prototxt"', "solver.prototxt:2: .*; write / in paths"),
    ("momentum: 0.9", "batch_size: 8", 'solver.prototxt:5: Message type "SolverParameter" has no field named "batch_size"'),
    ("momentum: 0.9", 'momentum: "much"', 'solver.prototxt:5: .*parse float: "much"'),
    ("momentum: 0.9", "momentum: 0.9 momentum: 0.8", "solver.prototxt:5: .*momentum"),
    ("momentum: 0.9", "eval_type: 'detektion'", "eval_type must be classification or detection, got 'detektion'"),
    ("momentum: 0.9", 'type: "SDG"', "unknown solver type 'SDG'; did you mean 'SGD'?"),
    ("momentum: 0.9", 'type: "AMSGrad"', "unknown solver type 'AMSGrad'; known types: .*SGD"),
    ("momentum: 0.9", 'type: "Adam" solver_type: ADAM', "both type and the old solver_type are given"),
    ('"fixed"', '"constant"', "lr_policy 'constant' is unknown; known policies: fixed step exp"),
    ('"fixed"', '"Multi_Step"', "lr_policy 'Multi_Step' is unknown; did you mean 'multistep'?"),
    ('lr_policy: "fixed"', "", "lr_policy is missing; known policies: fixed step exp"),
    ('"fixed"', '"step"', "lr_policy 'step' needs a stepsize above 0, got 0"),
    ('"fixed"', '"step" stepsize: -1', "stepsize.*-1"),
    ('"fixed"', '"sigmoid" gamma: -1', "'sigmoid' needs a gamma of 0 or more, got -1"),
    ('"fixed"', '"multistep" stepvalue: 5 stepvalue: 2', "stepvalue must rise, got 5 2"),
    ('"fixed"\nmomentum: 0.9\nmax_iter: 4', '"poly" max_iter: 0', "'poly' needs a max_iter above 0, got 0"),
    ('net: "net.prototxt"', "", "exactly one of net, .*; got none"),
    ('net: "net.prototxt"', 'net: "net.prototxt" train_net: "net.prototxt"', "exactly one of net, .*; got net"),
    ('net: "net.prototxt"', 'net: "no.prototxt"', "no.prototxt: no such file"),
    ('net: "net.prototxt"', 'net: "db"', "db: is a directory"),
    ('net: "net.prototxt"', r'net: "net\000.prototxt"', r"solver.prototxt: net 'net\x00.prototxt' has a zero byte"),
    ('net: "net.prototxt"', 'net: "solver.prototxt"', "solver.prototxt: a solver where a net is expected"),
    ('net: "net.prototxt"', 'net_param { layer { type: "Nothing" } }', "unknown type 'Nothing'"),
    ('"snap"', '"no/snap"', "snapshot_prefix 'no/snap': no such folder: no"),
    ("momentum: 0.9", "iter_size: 0", "iter_size must be 1 or more, got 0"),
    ("momentum: 0.9", "test_iter: 0 test_interval: 1", "test_iter must be 1 or more, got 0"),
    ("momentum: 0.9", "test_iter: 1", "test_interval must be above 0"),
    ("momentum: 0.9", 'test_iter: 1 test_interval: 1 test_net: "no.prototxt"', "no.prototxt: no such file"),
    ("snapshot: 2", "snapshot: -2", "snapshot must be 0 or more, got -2"),
    ("max_iter: 4", "max_iter: -4", "max_iter must be 0 or more, got -4"),
    ("max_iter: 4", "max_iter: 99999999999", "solver.prototxt:6: .*out of range: 99999999999"),
    ("max_iter: 4", "max_iter: 4.5", "solver.prototxt:6: .*parse integer: 4.5"),
    ("momentum: 0.9", "average_loss: 0", "average_loss must be 1 or more, got 0"),
    ("momentum: 0.9", "momentum: 1.5", "momentum must be 0 or more and below 1, got 1.5"),
    ("momentum: 0.9", "momentum: -0.5", "momentum must be 0 or more and below 1, got -0.5"),
    ("momentum: 0.9", "momentum: nan", "solver.prototxt:5: momentum must be a finite number, got nan"),
    ("base_lr: 0.01", "base_lr: nan", "solver.prototxt:3: base_lr must be a finite number, got nan"),
    ("base_lr: 0.01", "base_lr: inf", "solver.prototxt:3: base_lr must be a finite number, got inf"),
    ("base_lr: 0.01", "base_lr: 1e39", "solver.prototxt:3: base_lr must be a finite number, got 1e39"),
    ("base_lr: 0.01", "base_lr: 3e38", "is not finite at iteration .*, learning rate 3e+38"),
    ("momentum: 0.9", "weight_decay: nan", "solver.prototxt:5: weight_decay must be a finite number, got nan"),
    ("momentum: 0.9", "clip_gradients: nan", "solver.prototxt:5: clip_gradients must be a finite number, got nan"),
    ("momentum: 0.9", 'regularization_type: "L3"', "regularization_type must be one of L2 L1, got 'L3'"),
    ("momentum: 0.9", 'momentum: 0.9 type: "AdaGrad"', "'AdaGrad': momentum must be 0, got 0.9"),
    ("momentum: 0.9", 'type: "RMSProp" rms_decay: 1', "'RMSProp': rms_decay must be at least 0 and below 1, got 1"),
    ("momentum: 0.9", 'type: "Adam" momentum2: 1', "'Adam': momentum2 must be at least 0 and below 1, got 1"),
    ("momentum: 0.9", 'weights: "no.caffemodel"', "no.caffemodel: no such file"),
    ("momentum: 0.9", "device_id: -1 solver_mode: TPU", "solver.prototxt:5: .*TPU; known: CPU GPU"),
    ("momentum: 0.9", 'weights: "w.caffemodel,,"', "weights 'w.caffemodel,,' have an empty name"),
    ("momentum: 0.9", "snapshot_format: JSON", "solver.prototxt:5: .*JSON"),
    ("momentum: 0.9", "}", "solver.prototxt:5: .*Expected identifier"),
    ("momentum: 0.9", 'net: "unfinished', "solver.prototxt:5: .*missing ending quote"),
]

# One edit of net.prototxt: old, new, said.

NETS = [
    ("num_output", "num_outputs", 'net.prototxt:10: .*InnerProductParameter" has no field named "num_outputs"; did you mean \'num_output\'?'),
    ('top: "ip"', 'top: "ip" num_output: 3', 'net.prototxt:9: Message type "LayerParameter" has no field named "num_output"; it is written in inner_product_param { }'),
    ('top: "ip"', 'top: "ip" lr_mult: 3', 'has no field named "lr_mult"; it is written in param { }'),
    ("num_output: 10", "num_output: 10 lr_mult: 3", 'has no field named "lr_mult"; it is written in param { }, outside of the braces'),
    ('layer {\n  name: "ip" type: "InnerProduct"', 'layers {\n  name: "ip" type: "InnerProduct"', "has no value named \"InnerProduct\"; write 'layer {', whose types are strings, in place of 'layers {'"),
    ('bottom: "ip" bottom: "label" top: "loss"', 'bottom: "ip" bottom: "data" top: "loss"', "scores of shape .*, classes on axis 1, need .* labels, got shape"),
    ('top: "ip"', 'top: "ip" blobs_lr: 3', 'has no field named "blobs_lr"; write param { lr_mult: }'),
    ("num_output: 10", 'num_output: 10 bottom: "data"', 'has no field named "bottom"; it is written outside of the braces'),
    ("batch_size: 8", "batch_size: many", "net.prototxt:6: .*Couldn't parse integer: many"),
    ("batch_size: 8", "batch_size: -8", "net.prototxt:6: .*out of range: -8"),
    ("batch_size: 8", "batch_size: 0", "layer 'images' (Data): batch_size must be 1 or more, got 0"),
    ("backend: LMDB", "backend: MDB", 'Enum type "DataParameter.DB" has no value named MDB; did you mean \'LMDB\'?'),
    ("backend: LMDB", "backend: HDF5", "net.prototxt:6: Enum type .* has no value named HDF5; known: LEVELDB LMDB"),
    ('"InnerProduct"', '"InnerProdukt"', "layer 'ip': unknown type 'InnerProdukt'; did you mean 'InnerProduct'?"),
    ('"InnerProduct"', '"Dense"', "layer 'ip': unknown type 'Dense'; known types: .*InnerProduct"),
    ('"InnerProduct"', '""', "layer 'ip': unknown type ''"),
    ('"InnerProduct"', '"ROIAlign"', "net.prototxt:9: layer 'ip': type ROIAlign is of Faster R-CNN's Caffe; write a Python layer"),
    ("num_output", "scale_bias: true num_output", 'net.prototxt:10: .*has no field named "scale_bias"'),
    ('top: "ip"', 'top: "ip" video_data_param { }', "net.prototxt:9: layer 'ip' (InnerProduct): field video_data_param is of SSD's"),
    ('top: "ip"', 'top: "ip" engine: "MKL2017"', "net.prototxt:9: layer 'ip' (InnerProduct): engine \"MKL2017\" is of Intel's"),
    ('"xavier"', '"xaver"', "layer 'ip': unknown filler 'xaver'; did you mean 'xavier'?"),
    ('"xavier"', '"orthogonal"', "layer 'ip': unknown filler 'orthogonal'; known fillers: .*xavier"),
    ('bottom: "ip"', 'bottom: "pi"', "layer 'loss': no layer before it produces its bottom 'pi'; did you mean 'ip'?"),
    ('top: "ip"', 'top: "label"', "layer 'loss': no layer before it produces its bottom 'ip'; blobs so far: data label"),
    ('bottom: "data"', 'bottom: "loss"', "layer 'ip': no layer before it produces its bottom 'loss'; layer 'loss' (SoftmaxWithLoss) does, behind it: write it before"),
    ('top: "label"', 'top: "label" include { phase: TEST }', "layer 'images' (Data) does, but is of the phase TEST alone: give the phase TRAIN one, or change its rules"),
    ('top: "label"', 'top: "label" include { stage: "deploy" }', "layer 'images' (Data) does, but is left out by its rules: give the phase TRAIN one"),
    ('bottom: "ip" bottom: "label"', 'bottom: "label" bottom: "ip"', "bottom 0 has shape .*, as labels have, and bottom 1 .*write the bottom of the scores first"),
    ('top: "ip"', 'top: "more" inner_product_param { num_output: 2 } } layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"', "2 layers with parameters are called 'ip' (InnerProduct with top 'more', InnerProduct with top 'ip'); give each a name of its own"),
    ("scale: 0.00390625", "scale: inf", "net.prototxt:5: scale must be a finite number, got inf"),
    ('"xavier"', '"constant" value: nan', "net.prototxt:10: value must be a finite number, got nan"),
    ('top: "ip"', 'top: "ip" param { lr_mult: nan }', "net.prototxt:9: lr_mult must be a finite number, got nan"),
    ("num_output: 10", "", "layer 'ip' (InnerProduct): .*num_output"),
    ("num_output: 10", "num_output: 4294967296", "net.prototxt:10: .*Value out of range"),
    ("scale:", "crop_size: 5 scale:", "db: record '00000000' is 1 x 4 x 4, smaller than the crop_size of 5"),
    ("scale:", "mean_value: 1 mean_value: 2 scale:", "there are 2 mean values: give 1 or 1"),
    ("scale:", 'mean_value: 1 mean_file: "mean.binaryproto" scale:', "both mean_file and mean_value"),
    ("scale:", 'mean_file: "no" scale:', "mean file no: no such file"),
    ("scale:", 'mean_file: "list" scale:', "mean file list: not a .binaryproto"),
    ("scale:", 'mean_file: "mean.binaryproto" scale:', "is 1 x 4 x 4, but the mean image is 3 x 4 x 4"),
    ("scale:", r'mean_file: "a\000b" scale:', r"net.prototxt: layer '.*': transform_param.mean_file 'a\x00b' has a zero byte"),
    ("scale:", "force_color: true force_gray: true scale:", "force_color.*force_gray"),
    ('"db"', '"no"', "no: the LMDB or LevelDB can't be opened: no such file"),
    ('"db"', '""', "layer 'images' (Data): no source"),
    ('"db"', r'"d\000b"', r"net.prototxt: layer '.*': data_param.source 'd\x00b' has a zero byte"),
    ('"db"', '"list"', "list: expected a database's folder"),
    ('"db"', '"synthetic:many"', "synthetic:many: expected synthetic:RECORDSxCxHxW"),
    ('name: "ip"', 'name: "ip" param { lr_mult: 1 } param { } param { }', "layer 'ip'.*3 param"),
    ('name: "ip"', 'name: "ip" loss_weight: 1 loss_weight: 2', "layer 'ip'.*loss_weight"),
    ('name: "ip"', 'name: "ip" include { phase: TRAIN } exclude { phase: TEST }', "layer 'ip'.*include.*exclude"),
    ('name: "ip"', 'name: "ip" propagate_down: true propagate_down: true', "layer 'ip'.*propagate_down"),
    ('bottom: "label" top: "loss"', 'bottom: "data" top: "loss"', "layer 'loss' (SoftmaxWithLoss).*(8, 1, 4, 4)|layer 'loss' (SoftmaxWithLoss).*(4, 1, 4, 4)"),
    ('name: "SoftmaxRegression"', 'layers { name: "old" type: RELU bottom: "a" top: "a" }', "is written 'layer {'.*'layers {'"),
    ('name: "SoftmaxRegression"', 'input: "x" input_dim: 1 input_dim: 2', "2 input_dim for 1 input; expected 4 for each"),
    ('name: "SoftmaxRegression"', 'input: "x" input: "y" input_shape { dim: 1 }', "1 input_shape for 2 input"),
    ('name: "SoftmaxRegression"', "layer {", 'net.prototxt:3: .*"LayerParameter" has no field named "layer"'),
    ('type: "InnerProduct"', 'type: "Python" python_param { module: "m" layer: "L" }', "--allow-python-layers"),
]

# A layer `it` behind Inputs x (2, 4, 8, 8), v (2, 6) and l (2,): type and bottoms, fields, said.

LAYERS = [
    ("ROIAlign x", "roi_align_param { pooled_w: 7 }", "it.prototxt:4: layer 'it': type ROIAlign is of Faster R-CNN's Caffe"),
    ("HSwish x", "", "it.prototxt:4: layer 'it': type HSwish is of a fork of Caffe; write HardSwish"),
    ("DetectionOutput x x x", "detection_output_param { num_classes: 20 num_box: 5 }", "layer 'it' (DetectionOutput): field num_box is of a Caffe with YOLO"),
    ("DetectionOutput x x x", "detection_output_param { num_classes: 20 }", "layer 'it' (DetectionOutput): bottom 2 has shape (2, 4, 8, 8); give priors"),
    ("PriorBox x x", "prior_box_param { min_size: 3 aspect_ratio: 0 }", "layer 'it' (PriorBox): prior_box_param has aspect_ratio 0"),
    ("PriorBox x x", "prior_box_param { min_size: 0.2 }", "give at least one, in pixels, from 1 on"),
    ("ROIPooling x x", "roi_pooling_param { pooled_h: 2 pooled_w: 2 spatial_scale: 0 }", "needs spatial_scale above 0, got 0"),
    ("Upsample x", "upsample_param { scale: 0 }", "upsample_param has a scale of 0; give 1 or more"),
    ("MultiBoxLoss x x x x", "multibox_loss_param { num_classes: 3 neg_pos_ratio: -1 }", "neg_pos_ratio is -1; give 0 or more"),
    ("BN x", "bn_param { momentum: 2 }", "momentum from 0 to 1, got 1e-05, 2"),
    ("PriorBox x x", "prior_box_param { aspect_ratio: 2 }", "layer 'it' (PriorBox): prior_box_param has min_size []"),
    ("MultiBoxLoss x x x x", "multibox_loss_param { num_classes: 3 bp_inside: true }", "bp_inside: true is not here"),
    ("BN x", "bn_param { }", "layer 'it' (BN): is SegNet's and ENet's with scale_filler"),
    ("BN x", "bn_param { bn_mode: LEARN frozen: true }", "bn_param has fields of both"),
    ("Upsample x", "", "layer 'it' (Upsample): of one bottom, YOLO's, needs upsample_param { scale: }"),
    ("Interp x", "interp_param { pad_beg: 1 zoom_factor: 2 }", "they can only cut off"),
    ("Reorg x", "reorg_param { stride: 3 }", "stride 3 of a bottom of shape (2, 4, 8, 8); it must divide channels by 9"),
    ("ShuffleChannel x", "shuffle_channel_param { group: 3 }", "group 3 doesn't divide 4 channels"),
    ("DepthwiseConvolution x", "convolution_param { num_output: 8 kernel_size: 3 }", "num_output 8 for 4 channels; give num_output: 4"),
    ("Region x", "region_param { classes: 3 }", "5 boxes of 8 values need N x 40 x H x W"),
    ("ROIPooling x x", "roi_pooling_param { pooled_h: 2 pooled_w: 2 }", "give N x C x H x W, and R x 5"),
    ("Convolution x", "convolution_param { engine: MKL2017 }", "layer 'it' (Convolution): value MKL2017 is of Intel's Caffe"),
    ("BatchNorm x", "batch_norm_param { scale_bias: true }", "layer 'it' (BatchNorm): field scale_bias is of NVCaffe"),
    ("Convolution x", "convolution_param { kernel_size: 3 }", "needs num_output, at least 1"),
    ("Convolution x", "convolution_param { num_output: 4 }", "0 kernel_size for 2 spatial axes"),
    ("Convolution x", "convolution_param { num_output: 4 kernel_size: 0 }", "has kernel (0, 0); give at least 1"),
    ("Convolution x", "convolution_param { num_output: 4 kernel_size: 3 stride: 0 }", "has stride (0, 0)"),
    ("Convolution x", "convolution_param { num_output: 4 kernel_size: 3 group: 3 }", "group 3 doesn't divide 4 channels"),
    ("Convolution x", "convolution_param { num_output: 4 kernel_size: 11 pad: 1 }", "reaches over (11, 11)"),
    ("Convolution x", "convolution_param { num_output: 4 kernel_size: 4294967295 }", "can't have the shape"),
    ("Convolution x", "convolution_param { num_output: 4 kernel_h: 3 }", "has kernel (3, 0)"),
    ("Deconvolution x", "convolution_param { num_output: 4 kernel_size: 3 pad: 9 }", "leaves a top of size (-8, -8)"),
    ("Im2col x", "convolution_param { kernel_size: 9 }", "reaches over (9, 9)"),
    ("Pooling x", "pooling_param { }", "kernel (0, 0) with stride (1, 1)"),
    ("Pooling x", "pooling_param { kernel_size: 9 }", "kernel (9, 9) is larger than the bottom"),
    ("Pooling x", "pooling_param { kernel_size: 2 pad: 2 }", "pad (2, 2) must be smaller than the kernel (2, 2)"),
    ("Pooling x", "pooling_param { global_pooling: true kernel_size: 3 }", "leave out kernel sizes"),
    ("SPP x", "spp_param { pyramid_height: 9 }", "too small for 16 x 16 windows"),
    ("LRN x", "lrn_param { local_size: 4 }", "local_size is 4; give an odd number"),
    ("Dropout x", "dropout_param { dropout_ratio: 1.5 }", "dropout_ratio is 1.5; give a number from 0"),
    ("InnerProduct x", "inner_product_param { num_output: 2 axis: 5 }", "axis 5 of a bottom of shape (2, 4, 8, 8)"),
    ("InnerProduct x", 'inner_product_param { num_output: 2 weight_filler { type: "gaussian" std: -1 } }', "has std -1"),
    ("InnerProduct x", 'inner_product_param { num_output: 2 weight_filler { type: "uniform" min: 1 max: 0 } }', "min 1 above max 0"),
    ("InnerProduct x", 'inner_product_param { num_output: 2 weight_filler { type: "bilinear" } }', "needs 4 axes with a square kernel"),
    ("Embed l", "embed_param { num_output: 3 }", "needs input_dim, at least 1"),
    ("Slice x", "slice_param { axis: 4 }", "axis 4 of a bottom of shape (2, 4, 8, 8)"),
    ("Concat x v", "", "(2, 4, 8, 8).*(2, 6)"),
    ("Crop x x", "crop_param { axis: 2 offset: 1 }", "reach beyond bottom 0"),
    ("Eltwise x v", "", "bottoms have shapes (2, 4, 8, 8) and (2, 6)"),
    ("Eltwise x", "", "takes 2 or more bottoms, got 1"),
    ("Eltwise x x", "eltwise_param { coeff: 1 }", "has 1 coeff for 2 bottoms"),
    ("EuclideanLoss x v", "", "(2, 4, 8, 8) and (2, 6)"),
    ("Accuracy v l", "accuracy_param { top_k: 7 }", "top_k 7 needs as many classes"),
    ("SoftmaxWithLoss v l", "softmax_param { axis: 3 }", "axis 3 of a bottom of shape (2, 6)"),
    *((f"{kind} l v", "", f"({kind}): bottom 0 has shape (2,), as labels have, and bottom 1 (2, 6), as scores have; write the bottom of the scores first") for kind in ("SoftmaxWithLoss", "Accuracy", "HingeLoss", "MultinomialLogisticLoss")),
    ("SoftmaxWithLoss v", "", "takes 2 bottoms (the prediction, labels), got 1"),
    ("ContrastiveLoss v v", "", "takes 3 bottoms (a, b, are they alike), got 2"),
    ("InfogainLoss v l", "", "(InfogainLoss): .*source"),
    ("InfogainLoss v l", 'infogain_loss_param { source: "no" }', "no: no such file"),
    ("LSTM x v", "recurrent_param { num_output: 0 }", "needs num_output, at least 1"),
    ("Reshape x", "reshape_param { shape { dim: 7 } }", "(Reshape): 512 values of shape (2, 4, 8, 8).*(7,)"),
    ("Reshape x", "reshape_param { shape { dim: -1 dim: -1 } }", "(Reshape): .*[-1, -1]"),
    ("Flatten x", "flatten_param { axis: 3 end_axis: 1 }", "(Flatten): .*axis 3 .*end_axis 1"),
    ("Tile x", "tile_param { tiles: 0 }", "(Tile): .*tiles 0"),
    ("Reduction x", "reduction_param { axis: 4 }", "axis 4"),
    ("ArgMax v", "argmax_param { top_k: 9 }", "(ArgMax): top_k 9 .*(2, 6)"),
    ("BatchReindex x", "", "takes 2 bottoms (samples, indices), got 1"),
    ("Filter x", "", "takes 2 or more bottoms"),
    ("Scale x x x", "", "takes 1 to 2 bottoms"),
    ("Bias x v", "", "(Bias): an operand of shape (2, 6) .*(2, 4, 8, 8)"),
    ("ReLU x x", "", "takes 1 bottom, got 2"),
    ("Silence", "", "takes 1 or more bottoms, got 0"),
    ("Input", "input_param { shape { dim: 2 dim: -3 } }", "has shape (2, -3); give each axis at least 1"),
    ("Parameter", "parameter_param { shape { dim: -2 } }", "a parameter can't have the shape (-2,)"),
    ("DummyData", "dummy_data_param { shape { dim: 0 } }", "has shape (0,)"),
    ("DummyData", "dummy_data_param { num: 1 channels: 1 height: 1 }", "0 width for 1 tops"),
    ("MemoryData", "memory_data_param { batch_size: 0 }", "(MemoryData): .*needs a batch_size"),
    ("ImageData", 'image_data_param { source: "no" }', "image list no: no such file"),
    ("ImageData", 'image_data_param { source: "empty" }', "image list empty: expected lines"),
    ("ImageData", 'image_data_param { source: "list" new_height: 4 }', "both new_height and new_width .*got 4 and 0"),
    ("ImageData", 'image_data_param { source: "bad_list" }', "bad_list:1: expected 'FILE LABEL'"),
    ("ImageData", 'image_data_param { source: "gone_list" }', "image gone.png (gone_list:1): no such file"),
    ("ImageData", 'image_data_param { source: "zero_list" }', r"image a\x00b.png"),
    ("WindowData", 'window_data_param { source: "no" batch_size: 2 }', "window file no: no such file"),
    ("WindowData", 'window_data_param { source: "list" batch_size: 2 }', "list:1: expected"),
    ("HDF5Data", 'hdf5_data_param { source: "no" batch_size: 2 }', "HDF5 list no: no such file"),
    ("HDF5Data", 'hdf5_data_param { source: "empty" batch_size: 2 }', "HDF5 list empty: expected the names of HDF5 files"),
    ("HDF5Data", 'hdf5_data_param { source: "gone_list" batch_size: 2 }', "HDF5 file gone.png (gone_list:1): "),
    ("HDF5Data", 'hdf5_data_param { source: "zero_list" batch_size: 2 }', r"HDF5 file a\x00b.png"),
    ("HDF5Data", 'hdf5_data_param { source: "image.png" batch_size: 2 }', "HDF5 file .*(image.png:1): "),
    ("HDF5Data", 'hdf5_data_param { source: "h5_list" batch_size: 0 }', "batch_size must be 1 or more"),
]


def behind_inputs(kind: str, fields: str) -> str:
    """Return the net of Inputs x, v, l and of the layer `it`, given its type and bottoms."""
    shapes = {"x": "dim: 2 dim: 4 dim: 8 dim: 8", "v": "dim: 2 dim: 6", "l": "dim: 2"}
    inputs = [
        f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{ {dims} }} }} }}\n'
        for name, dims in shapes.items()
    ]
    kind, *bottoms = kind.split()
    named = " ".join(f'bottom: "{name}"' for name in bottoms)
    tops = ('top: "y" top: "z"' if kind in ("ImageData", "WindowData", "MemoryData", "Slice") else 'top: "y"') if kind != "Silence" else ""
    return "".join(inputs) + f'layer {{ name: "it" type: "{kind}" {named} {tops} {fields} }}\n'


# Weights and states: what is done to the file, the command, said.


def cut(path: str, part: float) -> Callable[[], object]:
    """Cut a file to a part of it, or by a byte (-1)."""
    return lambda: os.truncate(path, os.path.getsize(path) - 1 if part < 0 else int(os.path.getsize(path) * part))


def message(path: str, kind, change: Callable) -> Callable[[], object]:
    """Change a binary message."""

    def work() -> None:
        content = kind.FromString(Path(path).read_bytes())
        change(content)
        Path(path).write_bytes(content.SerializeToString())

    return work


def flip(path: str) -> Callable[[], object]:
    """Turn one bit round, in the middle."""

    def work() -> None:
        content = bytearray(Path(path).read_bytes())
        content[len(content) // 2] ^= 16
        Path(path).write_bytes(content)

    return work


def spoilt_snapshot() -> None:
    """Let the only snapshot of the prefix be one with damaged weights."""
    os.rename("last.solverstate", "snap_iter_4.solverstate")
    cut("snap_iter_4.caffemodel", 0.5)()


def weights(change: Callable) -> Callable[[], object]:
    """Change the parameter layer of w.caffemodel."""
    return message("w.caffemodel", NetParameter, lambda net: change(next(layer for layer in net.layer if layer.blobs)))


def state(change: Callable) -> Callable[[], object]:
    return message("s.solverstate", SolverState, change)


def h5(path: str, change: Callable) -> Callable[[], object]:
    """Change an HDF5 file."""

    def work() -> None:
        import h5py

        with h5py.File(path, "a") as file:
            change(file, h5py)

    return work


def instead(name: str, make: Callable) -> Callable:
    """Return a change that puts something else in the place of an item."""

    def change(file, h5py) -> None:
        if name in file:
            del file[name]
        file[name] = make(h5py) if callable(make) else make

    return change


WEIGHTS, WEIGHTS_H5 = f"{TRAIN} --weights w.caffemodel", f"{TRAIN} --weights w.caffemodel.h5"
STATE, STATE_H5 = f"{TRAIN} --snapshot s.solverstate", f"{TRAIN} --snapshot s.solverstate.h5"
SEALED = {"snap_iter_4.caffemodel": "--weights", "last.solverstate": "--snapshot"}
DAMAGED = "damaged, or changed by another program (.*copy it again, or go back to an older snapshot"
LINK, BLOB = "is a link into another file", "data/ip/0"
FILES = [
    ("a solver in UTF-16", TRAIN, lambda: Path("solver.prototxt").write_text(Path("solver.prototxt").read_text(), "utf-16"), "solver.prototxt: a text in UTF-16; save it as UTF-8"),
    ("a net in another encoding", TRAIN, lambda: Path("net.prototxt").write_bytes(b"\n# caf\xe9\n" + Path("net.prototxt").read_bytes()), "net.prototxt:2: the byte 0xe9 is not UTF-8; save it as UTF-8"),
    ("empty weights", WEIGHTS, cut("w.caffemodel", 0), "w.caffemodel: no layers in it"),
    ("cut weights", WEIGHTS, cut("w.caffemodel", 0.6), "w.caffemodel: not a binary NetParameter"),
    ("weights of another shape", WEIGHTS, lambda: edit("net.prototxt", "t: 10", "t: 12"), "layer 'ip', blob 0: shape (12, 16) in the net, (10, 16) in the file; to learn layer 'ip' anew, rename it in the net"),
    ("weights without a blob", WEIGHTS, weights(lambda layer: layer.blobs.pop()), "layer 'ip': 2 parameter blobs in the net, 1 in the file"),
    ("weights with a blob more", WEIGHTS, weights(lambda layer: layer.blobs.add(data=[1])), "layer 'ip': 2 parameter blobs in the net, 3 in the file"),
    ("weights with too few values", WEIGHTS, weights(lambda layer: layer.blobs[0].data.pop()), "159 values in the file for shape (10, 16)"),
    ("weights of a negative shape", WEIGHTS, weights(lambda layer: layer.blobs[0].shape.dim.append(-1)), "(10, 16, -1) in the file"),
    ("a state as weights", f"{TRAIN} --weights s.solverstate", None, "a solver state where weights are expected"),
    ("an LMDB as weights", f"{TRAIN} --weights db", None, "db: is a directory"),
    ("an image as weights", f"{TRAIN} --weights image.png", None, "image.png: not a binary NetParameter"),
    ("a mean image as weights", f"{TRAIN} --weights mean.binaryproto", None, "mean.binaryproto: .*weights are expected"),
    ("weights as a state", f"{TRAIN} --snapshot w.caffemodel", None, "not a solver state; weights"),
    ("cut state", STATE, cut("s.solverstate", 0.6), "s.solverstate: not a solver state"),
    ("state of Adam", STATE, state(lambda s: setattr(s, "solver_type", "Adam")), "the state of a solver of type Adam; this one's is SGD"),
    ("state with too little history", STATE, state(lambda s: s.history.pop()), "1 history blobs, but SGD with this net has 2"),
    ("state of another net", STATE, lambda: edit("net.prototxt", "t: 10", "t: 12"), "history of ip[0]: shape (12, 16) in the net, (10, 16) in the file"),
    ("state without weights", STATE, lambda: os.unlink("snap_iter_4.caffemodel"), "its weights 'snap_iter_4.caffemodel' are missing"),
    ("state with an odd plan", STATE, state(lambda s: s.plan.append("no way")), "expected 'work: way', got 'no way'"),
    ("weights in HDF5, cut", WEIGHTS_H5, cut("w.caffemodel.h5", 0.9), "w.caffemodel.h5: a damaged HDF5 file"),
    ("weights in HDF5, of another shape", WEIGHTS_H5, lambda: edit("net.prototxt", "t: 10", "t: 12"), "layer 'ip', blob 0: shape (12, 16) in the net, (10, 16) in the file"),
    ("blob that lies in another file", WEIGHTS_H5, h5("w.caffemodel.h5", instead(BLOB, lambda h5py: h5py.ExternalLink("s.solverstate.h5", "history/0"))), LINK),
    ("blob behind a soft link", WEIGHTS_H5, h5("w.caffemodel.h5", instead(BLOB, lambda h5py: h5py.SoftLink("/data/ip/1"))), "is a soft link"),
    ("blob 3000000", WEIGHTS_H5, h5("w.caffemodel.h5", instead("data/ip/3000000", [1.0])), "2 parameter blobs in the net, blob 3000000 in the file"),
    ("blob -1", WEIGHTS_H5, h5("w.caffemodel.h5", instead("data/ip/-1", [1.0])), "called by their number in 'data/ip', got '-1'"),
    ("blob of complex numbers", WEIGHTS_H5, h5("w.caffemodel.h5", instead(BLOB, np.zeros((10, 16), "c8"))), "expected numbers in 'data/ip/0', got complex64"),
    ("blob of strings", WEIGHTS_H5, h5("w.caffemodel.h5", instead(BLOB, np.zeros((10, 16), "S3"))), "expected numbers in 'data/ip/0', got |S3"),
    ("blob of 4 TB of nothing", WEIGHTS_H5, h5("w.caffemodel.h5", lambda file, _: file.create_dataset("data/ip/1024", (1 << 40,), "f4", chunks=(9,))), "blob 1024 in the file"),
    *((f"{path}{end}, a bit flipped", f"{TRAIN} {flag} {path}{end}", flip(path + end), f"{path}{end}: {DAMAGED}") for path, flag in SEALED.items() for end in ("", ".h5")),
    *((f"{path}{end}, cut", f"{TRAIN} {flag} {path}{end}", cut(path + end, 0.9), f"{path}{end}: .*damaged|{path}{end}: not a binary NetParameter") for path, flag in SEALED.items() for end in ("", ".h5")),
    *((f"{path}{end}, without its last byte", f"{TRAIN} {flag} {path}{end}", cut(path + end, -1), f"{path}{end}: .*damaged|{path}{end}: not a binary NetParameter") for path, flag in SEALED.items() for end in ("", ".h5")),
    ("no whole snapshot", f"{TRAIN} --snapshot auto", spoilt_snapshot, "there are snapshots, but none is whole (newest: snap_iter_4.solverstate): copy one anew; or, to start anew, remove them"),
    ("prefix of another job", TRAIN, lambda: nets.lock_of_a_running_job("snap"), "snapshot_prefix 'snap': another job writes there (process .*wait until it ends, or give this job another snapshot_prefix"),
    ("lock that is a link", TRAIN, lambda: os.symlink("elsewhere", "snap.lock"), "snap.lock: too many levels of symbolic links"),
    ("lock that is a folder", TRAIN, lambda: os.mkdir("snap.lock"), "snap.lock: is a directory"),
    ("unfinished database that is a link", "convert-imageset . list db2", lambda: os.symlink("elsewhere", "db2.unfinished"), "db2.unfinished is a symbolic link: remove db2.unfinished to start again"),
    ("state of a negative iteration", STATE, state(lambda s: setattr(s, "iter", -5)), "s.solverstate: a damaged solver state: iter: -5, expected 0 to"),
    ("state of a negative step", STATE, state(lambda s: setattr(s, "current_step", -1)), "a damaged solver state: current_step: -1"),
    ("state of too many samples", STATE, state(lambda s: setattr(s.position[0], "samples", 2**63 - 1)), "samples of layer 'images' in the train net: 9223372036854775807, expected 0 to"),
    ("state that names no weights", STATE, state(lambda s: s.ClearField("learned_net")), "a damaged solver state: it names no weights"),
    ("state that names weights with a zero byte", STATE, state(lambda s: setattr(s, "learned_net", "a\0b")), r"its weights 'a\x00b' are missing"),
    ("state of junk", STATE, write("s.solverstate", b"\xff\xfe junk \x00"), "s.solverstate: not a solver state, or a damaged one"),
    ("state in HDF5 of a negative iteration", STATE_H5, h5("s.solverstate.h5", instead("iter", [-5])), "a damaged solver state: iter: -5"),
    ("no blobs at all", WEIGHTS_H5, h5("w.caffemodel.h5", lambda file, _: file.__delitem__("data")), "no group data in it"),
    ("data that is an array", WEIGHTS_H5, h5("w.caffemodel.h5", instead("data", [1.0])), "'data' is no group"),
    ("groups in a circle", WEIGHTS_H5, h5("w.caffemodel.h5", lambda file, _: file["data/ip"].__setitem__("on", file["data"])), "two links lead to the group"),
    ("state in HDF5, cut", STATE_H5, cut("s.solverstate.h5", 0.5), "s.solverstate.h5: a damaged HDF5 file"),
    ("state in HDF5 without an iteration", STATE_H5, h5("s.solverstate.h5", lambda file, _: file.__delitem__("iter")), "not a solver state"),
    ("iteration that is a word", STATE_H5, h5("s.solverstate.h5", instead("iter", "four")), "expected numbers in 'iter'"),
    ("iteration beyond 32 bits", STATE_H5, h5("s.solverstate.h5", instead("iter", [1 << 40])), "s.solverstate.h5: .*out of range: 1099511627776"),
    ("two iterations", STATE_H5, h5("s.solverstate.h5", instead("iter", [1, 2])), "expected one integer in 'iter'"),
    ("name of weights that is a number", STATE_H5, h5("s.solverstate.h5", instead("learned_net", 3)), "expected a string in 'learned_net'"),
    ("history that lies in another file", STATE_H5, h5("s.solverstate.h5", instead("history", lambda h5py: h5py.ExternalLink("w.caffemodel.h5", "data/ip"))), LINK),
    ("history that is an array", STATE_H5, h5("s.solverstate.h5", instead("history", [1.0])), "no group history"),
    ("compound history", STATE_H5, h5("s.solverstate.h5", instead("history/0", np.zeros((10, 16), [("a", "f4")]))), "expected numbers in 'history/0'"),
]

# HDF5Data reads rows of dataset `y` from data.h5.

ROWS_H5 = [
    ("no such dataset", lambda file, _: file.__delitem__("y"), "no dataset 'y', which is the name of a top"),
    ("rows in another file", instead("y", lambda h5py: h5py.ExternalLink("w.caffemodel.h5", "data/ip/0")), LINK),
    ("rows behind a circle", instead("y", lambda h5py: h5py.SoftLink("/y")), "is behind more than 16 soft links"),
    ("rows of complex numbers", instead("y", np.zeros(4, "c8")), "expected numbers in 'y', got complex64"),
    ("rows of strings", instead("y", np.zeros(4, "S4")), "expected numbers in 'y', got |S4"),
    ("a scalar", instead("y", 1.0), "expected rows in 'y', got a scalar"),
    ("no rows", instead("y", np.zeros((0, 3))), "hold no rows"),
    ("a group", lambda file, _: (file.__delitem__("y"), file.create_group("y")), "no dataset 'y'"),
]

# The database: its files, or the records of which it is made; `alone`, met by one rank.


def records(*values: bytes) -> Callable[[], object]:
    """Make the LMDB anew, of these records."""

    def work() -> None:
        shutil.rmtree("db")
        write_lmdb("db", [(b"%08d" % i, value) for i, value in enumerate(values)])

    return work


def grey(side: int = 4, label: int = 0) -> bytes:
    return encode(np.full((1, side, side), 100, np.uint8), label)


XML = (
    "<annotation><size><width>10</width><height>8</height></size><object><name>cat</name><bndbox><xmin>1</xmin>"
    "<ymin>2</ymin><xmax>9</xmax><ymax>7</ymax></bndbox></object></annotation>"
)


def boxes(*edits, picture=True, lines="p.png p.xml", labels="item { name: 'cat' label: 1 }", more="") -> Callable[[], object]:
    """Return what makes a picture with a box, wrong by these `edits` of its annotation, or by the other files."""

    def work() -> None:
        text = XML
        for old, new in edits:
            assert old in text
            text = text.replace(old, new)
        Path("p.xml").write_text(text)
        if picture:
            Image.fromarray(np.zeros((8, 10, 3), np.uint8)).save("p.png")
        Path("list").write_text(lines + "\n")
        if labels is not None:
            Path("labels.prototxt").write_text(labels)
        given = "" if labels is None else 'annotated_data_param { label_map_file: "labels.prototxt" }'
        Path("it.prototxt").write_text(
            'layer { name: "it" type: "AnnotatedData" top: "data" top: "label" '
            f'data_param {{ source: "list" batch_size: 2 }} {given} {more} }}'
        )

    return work


def sixth(odd: bytes) -> Callable[[], object]:
    return records(*[grey()] * 5, odd, *[grey()] * 10)


NO_IMAGE = Datum(encoded=True, data=b"no image").SerializeToString()
INFINITE = Datum(channels=1, height=4, width=4, float_data=[float("inf")] * 16).SerializeToString()
DATABASES = [
    ("no data.mdb", lambda: os.unlink("db/data.mdb"), "db: expected a folder with data.mdb (an LMDB) or CURRENT"),
    ("empty data.mdb", cut("db/data.mdb", 0), "db/data.mdb: not an LMDB data file (0 bytes)"),
    ("data.mdb cut to a tenth", cut("db/data.mdb", 0.1), "db/data.mdb: truncated: "),
    ("data.mdb cut to a half", cut("db/data.mdb", 0.5), "db/data.mdb: truncated: "),
    ("data.mdb cut by a byte", lambda: os.truncate("db/data.mdb", os.path.getsize("db/data.mdb") - 1), "truncated"),
    ("data.mdb of words", write("db/data.mdb", "no database\n" * 999), "db/data.mdb: not an LMDB data file"),
    ("a LevelDB", lambda: (os.unlink("db/data.mdb"), Path("db/CURRENT").write_text("MANIFEST-000001\n")), "LevelDB"),
    ("a file", lambda: (shutil.rmtree("db"), Path("db").write_text("x")), "db: expected a database's folder, got a file"),
    ("undecodable first record", records(NO_IMAGE, grey()), "db: record '00000000': can't be decoded as an image"),
    ("first record that is no Datum", records(b"\xff\xff", grey()), "record '00000000': 2 bytes that are not a Datum"),
    ("first record with too little data", records(Datum(channels=1, height=4, width=4, data=b"x").SerializeToString()), "expected 16 values.*got 1"),
    ("first record of a negative size", records(Datum(channels=-1, height=4, width=4, data=b"x").SerializeToString()), "db: record '00000000'"),
    ("infinite data", sixth(INFINITE), "not finite at iteration 0"),
    ("first record without an image", records(Datum(label=3).SerializeToString()), "db: record '00000000'"),
]
BOXES = [
    ("box outside the picture", boxes(('<xmax>9<', '<xmax>99<')), "layer 'it' (AnnotatedData): picture p.png (list:1): annotation p.xml: has a box .* outside the picture"),
    ("box without area", boxes(('<ymax>7<', '<ymax>2<')), "annotation p.xml: has a box .* outside the picture or empty"),
    ("class that the label map lacks", boxes(('<name>cat<', '<name>dog<')), "layer 'it' (AnnotatedData): .*annotation p.xml: has a box of class 'dog', which the label map lacks"),
    ("annotation without a picture", boxes(picture=False), "layer 'it' (AnnotatedData): list:1: picture p.png: no such file"),
    ("picture without an annotation", boxes(lines="p.png q.xml"), "layer 'it' (AnnotatedData): list:1: annotation q.xml: no such file"),
    ("annotation of another size", boxes(('<width>10<', '<width>20<')), "annotation p.xml: is of a picture of 20 x 8, but the picture is 10 x 8"),
    ("annotation that is no XML", boxes(('<object>', '<objekt>')), "annotation p.xml: is no XML"),
    ("annotation in another encoding", boxes(('<annotation>', "<?xml version='1.0' encoding='gbk'?><annotation>")), "annotation p.xml: is no XML (multi-byte encodings"),
    ("corner that is no number", boxes(('<xmin>1<', '<xmin>one<')), "annotation p.xml: has 'one' as bndbox/xmin, expected a number"),
    ("line of one word", boxes(lines="p.png"), "list:1: expected 'PICTURE ANNOTATION', got 'p.png'"),
    ("no label map", boxes(labels=None), "layer 'it' (AnnotatedData): a list of pictures and annotations needs annotated_data_param { label_map_file: }"),
    ("label map that is none", boxes(labels="item { title: 'cat' }"), "layer 'it' (AnnotatedData): label map labels.prototxt: .*title"),
    ("distort_param", boxes(more="transform_param { distort_param { contrast_lower: 2 } }"), "layer 'it' (AnnotatedData): distort_param has contrast_lower"),
]
RECORDS = [
    ("label too large", sixth(grey(label=10)), "label 10 in row .*record '00000005'.* outside the classes 0 to 9"),
    ("negative label", sixth(grey(label=-1)), "label -1 in row .*record '00000005'"),
    ("another size", sixth(grey(side=5)), "record '00000005' is 1 x 5 x 5, but the first record is 1 x 4 x 4"),
    ("undecodable image", sixth(NO_IMAGE), "record '00000005': can't be decoded as an image"),
    ("no Datum", sixth(b"\xff\xff\xff"), "record '00000005': 3 bytes that are not a Datum"),
]

# An output that may not replace what is there: the command, and what is said. `link` and `hard` are links to what they name.

LOG = "a.log"
OUTPUTS = [
    (f"{TRAIN} --metrics null.prom", "metrics 'null.prom': is a device or a pipe; name a file"),
    (f"{TRAIN} --plan solver.prototxt", "plan 'solver.prototxt': is an input of this command, solver.prototxt; name another file"),
    (f"{TRAIN} --plan deploy.prototxt", "plan 'deploy.prototxt': is a net's prototxt, which would be replaced; remove it, or name another file"),
    (f"{TRAIN} --plan w.caffemodel", "plan 'w.caffemodel': is weights"),
    (f"{TRAIN} --timeline solver.prototxt", "timeline 'solver.prototxt': is an input of this command"),
    (f"{TRAIN} --timeline link", "timeline 'link': is an input of this command, net.prototxt"),
    (f"{TRAIN} --timeline hard", "timeline 'hard': is an input of this command, net.prototxt"),
    (f"{TRAIN} --timeline w.caffemodel.h5", "timeline 'w.caffemodel.h5': is weights"),
    (f"{TRAIN} --timeline new.prom --metrics new.prom", "metrics 'new.prom': is the file of timeline, too; name another file"),
    (f"{TRAIN} --timeline new.prom --metrics ./db/../new.prom", "metrics './db/../new.prom': is the file of timeline, too"),
    (f"{TRAIN} --timeline twice --metrics again.prom", "metrics 'again.prom': is the file of timeline, too"),
    (f"{TRAIN} --timeline new --plan new", "timeline 'new': is the file of plan, too"),
    (f"{TRAIN} --timeline snap_iter_2.solverstate", "timeline 'snap_iter_2.solverstate': is a file of this training's snapshots"),
    (f"{TRAIN} --patience 1 --timeline snap_best.caffemodel", "timeline 'snap_best.caffemodel': is a file of this training's"),
    (f"{TRAIN} --timeline ./snap.lock", "timeline './snap.lock': is a file of this training's snapshots"),
    ("time --model net.prototxt --iterations 1 --profile new --plan new", "profile 'new': is the file of plan, too"),
    ("time --model wrote.prototxt --iterations 1 --profile wrote.h5", "file_name 'wrote.h5': is the file of profile, too"),
    ("extract-features w.caffemodel net.prototxt ip,loss new,./new 1 --db npy", "loss './new': is the file of ip, too"),
    (f"plot-log {LOG} new.svg --csv new.svg", "--csv 'new.svg': is the file of picture, too"),
    (f"{TRAIN} --timeline s.solverstate", "timeline 's.solverstate': is a solver state"),
    (f"{TRAIN} --timeline s.solverstate.h5", "timeline 's.solverstate.h5': is a solver state"),
    (f"{TRAIN} --timeline db/data.mdb", "timeline 'db/data.mdb': is a database"),
    (f"{TRAIN} --run-config c.toml --timeline c.toml", "timeline 'c.toml': is an input of this command, c.toml"),
    (f"{TRAIN} --metrics net.prom", "metrics 'net.prom': is a net's prototxt"),
    ("time --model net.prototxt --iterations 1 --profile net.prototxt", "profile 'net.prototxt': is an input of this command"),
    ("time --model net.prototxt --iterations 1 --profile deploy.prototxt", "profile 'deploy.prototxt': is a net's prototxt"),
    ("time --model lists.prototxt --iterations 1 --profile list", "profile 'list': is an input of this command, list"),
    ("time --model lists.prototxt --iterations 1 --plan data.h5", "plan 'data.h5': is an input of this command, data.h5"),
    ("time --model writes.prototxt --iterations 1", "file_name 'w.caffemodel.h5': is weights"),
    ("extract-features w.caffemodel net.prototxt ip w.caffemodel 1 --db npy", "ip 'w.caffemodel': is an input of this command"),
    ("extract-features w.caffemodel net.prototxt ip w.caffemodel.h5 1 --db hdf5", "ip 'w.caffemodel.h5': is weights"),
    (f"plot-log {LOG} --csv {LOG}", f"--csv '{LOG}': is an input of this command, {LOG}; name another file"),
    (f"plot-log {LOG} --csv solver.prototxt", "--csv 'solver.prototxt': is a solver's prototxt"),
    (f"plot-log {LOG} out.svg", "picture 'out.svg': is an input of this command"),
    ("compute-image-mean db list.prototxt", "mean file 'list.prototxt': is a prototxt"),
    ("compute-image-mean db image.png", "mean file 'image.png': is a picture"),
    ("compute-image-mean db w.caffemodel", "mean file 'w.caffemodel': is weights"),
    ("inspect-db db --plot net.png", "--plot 'net.png': is a net's prototxt"),
    ("upgrade-net net.prototxt net.prototxt", "OUT 'net.prototxt': is an input of this command"),
    ("upgrade-net net.prototxt w.caffemodel", "OUT 'w.caffemodel': is weights"),
    ("upgrade-net net.prototxt solver.prototxt", "OUT 'solver.prototxt': is a solver's prototxt"),
    ("upgrade-net net.prototxt s.solverstate", "OUT 's.solverstate': is a solver state"),
    ("upgrade-solver solver.prototxt hard", "OUT 'hard': is a net's prototxt"),
    ("upgrade-solver solver.prototxt solver.prototxt", "OUT 'solver.prototxt': is an input of this command"),
    ("draw-net net.prototxt net.dot", "picture 'net.dot': is an input of this command, net.prototxt"),
    ("draw-net net.prototxt w.svg", "picture 'w.svg': is weights"),
    ("classify a.npy a.npy --model deploy.prototxt --weights w.caffemodel", "scores 'a.npy': is an input of this command"),
    ("detect windows.csv windows.csv --model deploy.prototxt --weights w.caffemodel", "OUT 'windows.csv': is an input of this command"),
    ("simulate-instances p.json --plot p.png", "--plot 'p.png': is an input of this command"),
    ("simulate --net lenet --ranks 2 --cluster 8280 --profile p.json --timeline p.json", "--timeline 'p.json': is an input of this command"),
    ("make-data word_lm . --text words.txt", "OUT_DIR's './words.txt': is an input of this command"),
]


def outputs() -> None:
    """Make what the rows of OUTPUTS name."""
    os.symlink("net.prototxt", "link")
    os.link("net.prototxt", "hard")
    os.symlink(os.devnull, "null.prom")
    for name, of in (("net.prom", "net.prototxt"), ("net.png", "net.prototxt"), ("net.dot", "net.prototxt"), ("w.svg", "w.caffemodel")):
        os.symlink(of, name) if name == "net.dot" else shutil.copy(of, name)
    Path(LOG).write_text(log_specimens.whole())
    os.link(LOG, "out.svg")
    for name in ("p.json", "c.toml", "a.npy", "windows.csv", "words.txt"):
        Path(name).write_text("# of the user's\n")
    os.link("p.json", "p.png")
    Path("twice").touch()
    os.link("twice", "again.prom")
    Path("wrote.prototxt").write_text(behind_inputs("HDF5Output", 'hdf5_output_param { file_name: "wrote.h5" }'))
    Path("list.prototxt").write_text("layer { of a fork, which scaffe can't read")
    Path("lists.prototxt").write_text(behind_inputs("HDF5Data", 'hdf5_data_param { source: "h5_list" batch_size: 2 }') + 'layer { name: "i" type: "ImageData" top: "i" image_data_param { source: "list" } }')
    Path("writes.prototxt").write_text(behind_inputs("HDF5Output", 'hdf5_output_param { file_name: "w.caffemodel.h5" }'))


# What is no file, given where one is read: no memory is filled, and nothing waits for another program.

SPECIAL = [
    "train --solver {}", f"{TRAIN} --weights {{}}", f"{TRAIN} --snapshot {{}}", f"{TRAIN} --run-config {{}}", f"{TRAIN} --plan {{}}",
    f"{TRAIN} --compute replay:{{}}", "train --flagfile {}", "time --model {}", "test --model net.prototxt --weights {}",
    "plot-log {} out.png", "watch {} --once", "timeline {}", "simulate-instances {}", "simulate --net lenet --ranks 2 --cluster {}.toml",
    "upgrade-net {} new.prototxt", "upgrade-solver {} new.prototxt", "draw-net {} new.svg", "convert-imageset . {} new", "convert-mnist {} {} new",
    "classify {} --model deploy.prototxt --weights w.caffemodel", "classify image.png --model deploy.prototxt --weights w.caffemodel --labels {}",
    "classify image.png --model deploy.prototxt --weights w.caffemodel --mean {}.npy", "detect {}.csv new.csv --model deploy.prototxt --weights w.caffemodel",
    "inspect-db {}", "compute-image-mean {} new", "make-data word_lm new --text {}", "time --model special.prototxt --iterations 1",
]


def special() -> None:
    """Make a named pipe, by the names that the rows of SPECIAL have for it, and a net of what is listed in it."""
    for name in ("pipe", "pipe.toml", "pipe.npy", "pipe.csv"):
        os.mkfifo(name)
    Path("special.prototxt").write_text(behind_inputs("HDF5Data", 'hdf5_data_param { source: "pipe" batch_size: 2 }'))


def table() -> list[Wrong]:
    """Return all rows."""
    rows = [Wrong(f"scaffe {command}", command, said) for command, said in FLAGS]
    rows += [Wrong(f"scaffe {command}", command, said, over_ranks=True) for command, said in OVER_RANKS]
    rows += [
        Wrong(f"cluster.toml: {text!r}", f"{TRAIN} --run-config cluster.toml", said, write("cluster.toml", text))
        for text, said in SETTINGS
    ]
    for path, edits in (("solver.prototxt", SOLVERS), ("net.prototxt", NETS)):
        rows += [
            Wrong(f"{path}: {old} -> {new}", TRAIN, said, lambda path=path, old=old, new=new: edit(path, old, new))
            for old, new, said in edits
        ]
    rows += [
        Wrong(f"{kind}: {fields}", "time --model it.prototxt --iterations 1", said, write("it.prototxt", behind_inputs(kind, fields)))
        for kind, fields, said in LAYERS
    ]
    rows += [Wrong(name, command, said, make or (lambda: None)) for name, command, make, said in FILES]
    source = behind_inputs("HDF5Data", 'hdf5_data_param { source: "h5_list" batch_size: 2 }')
    rows += [
        Wrong(f"data.h5: {name}", "time --model it.prototxt --iterations 1", said, lambda change=change: (Path("it.prototxt").write_text(source), h5("data.h5", change)()))
        for name, change, said in ROWS_H5
    ]
    rows += [Wrong(f"scaffe {command}", command, said, outputs) for command, said in OUTPUTS]
    rows += [Wrong(f"scaffe {words.replace('{}', 'pipe')}", words.replace("{}", "pipe"), "is a device or a pipe; name a file|not a directory", special) for words in SPECIAL]
    rows += [Wrong(f"boxes: {name}", "time --model it.prototxt --iterations 1", said, make) for name, make, said in BOXES]
    rows += [Wrong(f"db: {name}", TRAIN, said, make) for name, make, said in DATABASES]
    rows += [Wrong(f"db: {name}", TRAIN, said, make, alone=True) for name, make, said in RECORDS]
    return rows
