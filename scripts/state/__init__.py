"""Where a stack's state lies, who holds it, and how a bucket for it is made."""
