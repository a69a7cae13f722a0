"""What others have published about each mechanism: facts only, beside what the lab measures."""

PUBLISHED = {
    "proportional": (
        "at least 3/4 of the best welfare where owners foresee how the price moves (Johari and "
        "Tsitsiklis 2004)"
    ),
    "clock": "descending clocks are obviously strategy-proof (Milgrom and Segal 2020)",
    "second-price": "truthful for one winner (Vickrey 1961)",
    "optimal": "largest expected utility of all truthful mechanisms (Myerson 1981)",
    "fairquery": "truthful, individually rational and within its budget (Ghosh and Roth 2011)",
    "all-in": "a baseline of FL-Market beside FairQuery (Zheng and others 2022)",
}
