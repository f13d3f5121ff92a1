"""The folder that install() adds to sys.path, where processes that multiprocessing spawns find `caffe`."""
