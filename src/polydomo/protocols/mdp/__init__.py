"""MDP/0.1 and MDP/0.2."""
