"""The roles of a stack as supervised processes of one machine."""
