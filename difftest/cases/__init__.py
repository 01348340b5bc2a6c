"""Which calls there are: the case, the generator of cases, the families of inputs, and the bytes that a call moves."""

from difftest.cases.case import Case
from difftest.cases.generate import Request, generate

__all__ = ["Case", "Request", "generate"]
