"""Tools: what Caffe's tools do to a net."""
