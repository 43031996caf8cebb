"""`python -m benchmarks [MEASURE…]`: start a server, measure, print a table; write or compare JSON when asked."""

import argparse
import sys
from functools import partial
from pathlib import Path

from tests.framework.platform import Platform, home

from .figures import Figure, host, save, table, worse
from .measures import MEASURES, phases, tti
from .scale import endurance

BASELINE = Path(__file__).with_name("baseline.json")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("measures", nargs="*", metavar="MEASURE", help=f"some of {', '.join(MEASURES)}; default all")
    parser.add_argument("--short", action="store_true", help="fewer rounds")
    parser.add_argument("--docker", action="store_true", help="beside `docker run` too, where an engine answers")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures with the host's description")
    parser.add_argument("--check", action="store_true", help="fail when a ratio is a quarter worse than baseline.json")
    parser.add_argument("--endurance", type=float, metavar="MINUTES", help="create and destroy for so long, at the end")
    chosen = parser.parse_args()
    if unknown := set(chosen.measures) - set(MEASURES):
        parser.error(f"no measure is called {', '.join(sorted(unknown))}")
    return chosen


def main() -> int:
    chosen = arguments()
    measures = {**MEASURES}
    measures["tti"] = partial(tti, docker=chosen.docker)
    figures: list[Figure] = []
    print(host())
    with Platform(home("benchmarks")) as platform:
        platform.ensure_base()
        print("phases of a create:", phases(platform))
        for name in chosen.measures or measures:
            print(f"measuring {name} …", flush=True)
            figures += measures[name](platform, 20 if chosen.short else 100)
        if chosen.endurance:
            print(f"measuring endurance for {chosen.endurance:g} min …", flush=True)
            figures += endurance(platform, chosen.endurance)
    print(table(figures))
    if chosen.json:
        save(figures, chosen.json)
    faults = worse(figures, BASELINE) if chosen.check else []
    print("\n".join(f"worse than the baseline: {fault}" for fault in faults), end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
