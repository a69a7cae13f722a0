"""What evidence shows of devices that do not send what they sold, and of honest ones that differ.

``attacks`` has what a deviating device sends, ``scenario`` one seed's federation with the devices
that are watched, ``watched_engine`` trains it with evidence, ``outcomes`` says what came of it,
``sweeps`` what is tried, and ``tables`` how it is shown. The statistics are the market's own
(``learning.evidence``).
"""
