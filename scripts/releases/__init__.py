"""Releases of a stack: what each of its updates was made of, and how an earlier one is run again."""
