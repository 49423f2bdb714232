"""A pool of processes that run the functions of a worker, one call each at a time"""
