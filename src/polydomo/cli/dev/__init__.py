"""The command `polydomo dev`: a broker and a worker for development."""
