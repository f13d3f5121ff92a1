"""scaffe convert-imageset."""

from __future__ import annotations

import argparse

import readers
from scaffe.commands.databases import add_backend_flag
from scaffe.commands.gflags import Parser
from scaffe.commands.parser import add_command
from scaffe.commands.running import alone
from scaffe.monitor.log import log

RANK = 20


def add(top: Parser) -> None:
    """Add `convert-imageset`."""
    text = (
        "Make a database of the images that a list of 'FILE LABEL' lines names. Finished work survives a kill, in "
        "DB.unfinished: the same command continues there."
    )
    command = add_command(top, "convert-imageset", lambda a: alone(lambda: _convert(a)), text)
    command.add_argument("root", metavar="ROOT", help="folder that the list's names are in")
    command.add_argument("list", metavar="LIST")
    command.add_argument("db", metavar="DB")
    command.flag("gray", action="store_true", help="store one grey channel")
    command.flag("shuffle", action="store_true", help="store in random order")
    command.flag("seed", type=int, default=0, metavar="N", help="of the random order")
    add_backend_flag(command)
    command.flag("resize-width", type=int, default=0, metavar="N", help="pixels; 0: as the image")
    command.flag("resize-height", type=int, default=0, metavar="N", help="pixels; 0: as the image")
    command.flag("check-size", action="store_true", help="refuse images of several shapes")
    command.flag("encoded", action="store_true", help="store the files' own bytes, as JPEG or PNG")
    command.flag("encode-type", default="", metavar="png|jpg", help="store all images in this format")
    command.flag("shards", type=int, default=1, metavar="N", help="make DB a folder of N LMDBs, for striped reading")
    command.flag("threads", type=int, default=0, metavar="N", help="threads that decode; 0: one for each core")
    text = "log and leave out images that can't be read, as Caffe does, or end at the first one"
    command.flag("bad-records", choices=("skip", "fail"), default="skip", help=text)


def _convert(a: argparse.Namespace) -> None:
    count = readers.convert_imageset(
        a.root, a.list, a.db, gray=a.gray, shuffle=a.shuffle, seed=a.seed, resize_width=a.resize_width,
        resize_height=a.resize_height, check_size=a.check_size, encoded=a.encoded, encode_type=a.encode_type,
        shards=a.shards, threads=a.threads, backend=a.backend, say=log.info,
        left_out=log.error if a.bad_records == "skip" else None,
    )  # fmt: skip
    log.info("Processed %d files.", count)
