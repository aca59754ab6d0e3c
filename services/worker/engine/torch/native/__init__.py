"""What torch computes too slowly for one token a sequence, compiled for the CPU at hand."""
