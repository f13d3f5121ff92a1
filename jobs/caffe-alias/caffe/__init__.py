"""`import caffe` gives scaffe.pycaffe."""

import scaffe.pycaffe

scaffe.pycaffe.install()
