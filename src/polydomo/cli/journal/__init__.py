"""Commands on the files of a journal."""
