# Nothing here is for Python: what other extensions may cimport is in group.pxd.
