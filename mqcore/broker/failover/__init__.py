"""Groups of brokers that elect their master: a state that is swapped in one place (etcd), and what follows from it.

``coordinator`` decides, without sockets, files or clocks of its own; ``group_state`` is what the brokers of a group
agree on. How far two logs are one log is said in ``store/epochs``.
"""
