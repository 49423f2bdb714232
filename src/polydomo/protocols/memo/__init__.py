"""memo01, the protocol of MemoDB, and the data it carries: Nodes, CIDs and calls."""
