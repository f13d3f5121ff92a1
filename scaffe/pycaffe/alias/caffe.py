"""Make `import caffe` give scaffe.pycaffe, where this folder is on sys.path."""

import scaffe.pycaffe

scaffe.pycaffe.install()
