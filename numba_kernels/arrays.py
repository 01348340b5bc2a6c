from .formats import FORMATS

ITEMSIZE = {name: each.itemsize for name, each in FORMATS.items()}
