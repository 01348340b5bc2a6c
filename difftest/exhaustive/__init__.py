"""Every pair of 16-bit operands of an operator, made and judged on the device by kernels of this room's own.

An operator of two 16-bit operands has 2^32 inputs. Its bounds depend on few numbers of each operand alone, so tables that
`reference.exact` fills (tables.py) and one product a pair (kernels.py) say of every output whether it is attainable.
"""
