"""Whether what was read from YAML or JSON has the shape that its reader expects."""


def misfit(value, shape, path=""):
    """What in `value` is not of the shape; nothing when all is. Every field of the shape must be there, and no other."""
    if isinstance(shape, type):
        return None if isinstance(value, shape) else f"{path}: {value!r} is no {shape.__name__}"
    if type(value) is not type(shape):
        return f"{path}: {value!r} is no {type(shape).__name__}"
    if isinstance(shape, list):
        return next(filter(None, (misfit(item, shape[0], f"{path}[{i}]") for i, item in enumerate(value))), None)
    if value.keys() != shape.keys():
        return f"{path}: has {sorted(value)}, not {sorted(shape)}"
    return next(filter(None, (misfit(value[key], shape[key], f"{path}.{key}") for key in shape)), None)
