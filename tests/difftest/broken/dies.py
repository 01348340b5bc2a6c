"""Takes its process down in the middle of a call, as a stray pointer would."""

import os


def rmsnorm(input, weight, eps):
    os._exit(7)
