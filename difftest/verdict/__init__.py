"""Does an output follow a contract? How far are two outputs apart, and how far is one from the truth?"""

from difftest.verdict.judge import Verdict, judge

__all__ = ["Verdict", "judge"]
