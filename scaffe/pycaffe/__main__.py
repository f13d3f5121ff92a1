"""python -m scaffe.pycaffe script.py ARGS...: run a program that says `import caffe`."""

import os
import runpy
import sys

from scaffe.pycaffe import install

install()
sys.argv = sys.argv[1:]
sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
