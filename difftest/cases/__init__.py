"""Which calls there are: the case, the generator of cases, the families of inputs, and the bytes that a call moves."""

from difftest.cases.case import Case
from difftest.cases.generate import generate
from difftest.cases.request import Request

__all__ = ["Case", "Request", "generate"]
