"""How a stack is proved to work: gather facts as a client would, judge them, advise."""
