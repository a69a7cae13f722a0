"""What a party gains by playing the market another way than intended: the best that search finds.

``play`` has the records of one played task, ``strategies`` what names do in it, ``cases`` a row of
the table each. Every case is played under the old protocol (``old_protocol``, a model) and against
the market's own commands (``embedded.deviation_market``).
"""

from fedbourse.study.deviations.findings import DeviationStudy, all_cases, deviation_study

__all__ = ["DeviationStudy", "all_cases", "deviation_study"]
