from .runtime.arguments import WIDEST as WIDEST
