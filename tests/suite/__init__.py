"""How the tests are run, as plugins of pytest: seeds, shares, time limits, second looks, and the last lines."""
