"""Publishers and subscribers of ZeroMQ."""
