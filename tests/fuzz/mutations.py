"""Random damage and forgeries of files."""

import io
import json
import zipfile

import numpy as np


def damaged(content, rng):
    """Return a file with flipped, missing, zeroed, duplicated or exchanged bytes, as after errors of disks and networks."""
    content = bytearray(content)
    kind = rng.integers(5)
    if kind == 0:
        for at in rng.integers(0, len(content), rng.integers(1, 9)):
            content[at] ^= 1 << int(rng.integers(8))
    elif kind == 1:
        del content[int(rng.integers(0, len(content))) :]
    elif kind == 2:
        at, length = int(rng.integers(len(content))), int(rng.integers(1, 200))
        content[at : at + length] = bytes(len(content[at : at + length]))
    elif kind == 3:
        at, length = int(rng.integers(len(content))), int(rng.integers(1, 60))
        content[at:at] = content[at : at + length]
    else:
        at, other = sorted(int(place) for place in rng.integers(0, len(content), 2))
        content[at : at + 16], content[other : other + 16] = content[other : other + 16], content[at : at + 16]
    return bytes(content)


def forged(content, rng):
    """Return a valid zip file with changed arrays or another schema, as an attacker could write it."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    arrays = [name for name in members if name.endswith((".npy", ".npz"))]
    if arrays and rng.random() < 0.7:
        name = arrays[int(rng.integers(len(arrays)))]
        members[name] = forged_npz(members[name], rng) if name.endswith(".npz") else forged_npy(members[name], rng)
        if name.endswith(".npy") and rng.random() < 0.5:
            members["schema.json"] = with_description(members["schema.json"], name, members[name])
    else:
        members["schema.json"] = forged_schema(members["schema.json"], rng)
    return zipped(members)


def with_description(schema, name, content):
    """Return a schema in which an array was saved with the shape and dtype of other content."""
    array = np.load(io.BytesIO(content), allow_pickle=False)

    def replaced(node):
        return node | {"saved_as": f"shape {array.shape} and dtype {array.dtype}"} if node.get("file") == name else node

    return json.dumps(json.loads(schema, object_hook=replaced)).encode()


def zipped(members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    return buffer.getvalue()


def forged_npy(content, rng):
    array = np.load(io.BytesIO(content), allow_pickle=False)
    kind = rng.integers(6)
    if kind == 0 and array.size:
        array = array.ravel()[: int(rng.integers(0, array.size))]
    elif kind == 1:
        array = np.repeat(np.atleast_1d(array), 2, axis=-1)
    elif kind == 2 and array.dtype.kind == "f" and array.size:
        array = array.copy()
        array.flat[int(rng.integers(array.size))] = [np.nan, np.inf, 1e300][int(rng.integers(3))]
    elif kind == 3:
        array = array.T if array.ndim > 1 else array[None]
    elif kind == 4 and array.dtype.kind in "iu" and array.size:
        array = array.copy()
        array.flat[int(rng.integers(array.size))] = np.iinfo(array.dtype).max
    else:
        array = np.zeros(int(rng.integers(0, 50)), dtype=["f4", "i8", "U3", "?"][int(rng.integers(4))])
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def forged_npz(content, rng):
    """Return a sparse matrix with one part out of bounds."""
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        parts = {name: file[name] for name in file.files}
    key = ["indices", "indptr", "data", "shape"][int(rng.integers(4))]
    part = parts[key].copy()
    kind = rng.integers(3)
    if kind == 0:
        part.flat[int(rng.integers(part.size))] = [-1, 10**6, 2**31 - 1][int(rng.integers(3))]
    elif kind == 1:
        part = part[: int(rng.integers(part.size))]
    else:
        part = part[rng.permutation(part.size)] if key != "data" else part * np.inf
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **{**parts, key: part})
    return buffer.getvalue()


NAMES = ["gramless.__main__.X", "gramless.streaming.stream.Stream", "os.system", "builtins.eval", "sklearn.svm._classes.SVC"]
LOADERS = ["ConstructorFromReduceNode", "TypeNode", "FunctionNode", "ListNode", "MethodNode", "ObjectNode"]


def forged_schema(content, rng):
    schema = json.loads(content)
    nodes, waiting = [], [schema]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            nodes.append(value)
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    node = nodes[int(rng.integers(len(nodes)))]
    kind = rng.integers(4)
    if kind == 0:
        module, _, name = NAMES[int(rng.integers(len(NAMES)))].rpartition(".")
        node |= {"__module__": module, "__class__": name}
    elif kind == 1:
        node["__loader__"] = LOADERS[int(rng.integers(len(LOADERS)))]
    elif kind == 2 and node:
        del node[list(node)[int(rng.integers(len(node)))]]
    else:
        node["content"] = ["-1", "1e400", "[]", '"x"', "null"][int(rng.integers(5))]
    return json.dumps(schema).encode()
