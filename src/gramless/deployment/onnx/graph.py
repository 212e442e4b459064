"""Builder of ONNX graphs: expressions of tensors, with NumPy arrays and numbers as constants.

    graph = Graph(np.float32)
    x = graph.input("x", np.float32, ["n", 5])
    graph.output("scores", x @ coef + intercept, np.float32, ["n", 3])
    model = graph.model("a linear function")

Floats and arrays of floats become constants in the dtype of the graph, Python integers become int64; equal constants are
stored once.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

with suppress(ImportError):  # `to_onnx` reports that the optional package is missing
    from onnx import checker, compose, helper, numpy_helper

OPSET = 19
# Version of the file format (IR version) of ONNX 1.14, which runtimes with this operator set support.
_IR_VERSION = 9


def _operator(kind: str) -> tuple[Any, Any]:
    """Return the methods of a binary Python operator and of the same operator with exchanged operands."""
    return lambda self, other: self.graph.op(kind, self, other), lambda self, other: self.graph.op(kind, other, self)


class Tensor:
    """Value in a graph under construction; operators of Python and `op` add nodes to the graph."""

    __array_ufunc__ = None  # if the left operand is a NumPy array, Python calls the method of this class

    def __init__(self, graph: Graph, name: str):
        self.graph = graph
        self.name = name

    __add__, __radd__ = _operator("Add")
    __sub__, __rsub__ = _operator("Sub")
    __mul__, __rmul__ = _operator("Mul")
    __truediv__, __rtruediv__ = _operator("Div")
    __matmul__, _ = _operator("MatMul")
    __mod__, _ = _operator("Mod")
    __and__, _ = _operator("And")
    __gt__, __lt__ = _operator("Greater")
    __ge__, __le__ = _operator("GreaterOrEqual")

    def op(self, kind: str, *inputs: Any, **attributes: Any) -> Tensor:
        """Return the output of an ONNX operator whose first input is this tensor."""
        return self.graph.op(kind, self, *inputs, **attributes)

    def where(self, true: Any, false: Any) -> Tensor:
        """Return the elements of `true` where this boolean tensor is true, and the elements of `false` elsewhere."""
        return self.op("Where", true, false)

    def cast(self, dtype: Any) -> Tensor:
        """Return the tensor converted to a dtype."""
        return self.op("Cast", to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def as_float(self) -> Tensor:
        """Return the tensor converted to the dtype of the graph."""
        return self.cast(self.graph.dtype)

    def columns(self, *indices: int) -> Tensor:
        """Return the columns of the matrix at the given indices."""
        return self.op("Gather", np.array(indices, dtype=np.int64), axis=1)

    def sum(self, axis: int, *, keepdims: bool = True) -> Tensor:
        """Return the sums of the tensor along an axis."""
        return self.op("ReduceSum", np.array([axis]), keepdims=int(keepdims))

    def flat(self) -> Tensor:
        """Return a matrix with one column as a vector."""
        return self.op("Squeeze", np.array([1]))


class Graph:
    """Nodes, constants, inputs and outputs of a graph under construction; floating-point values have the dtype `dtype`."""

    def __init__(self, dtype: Any):
        self.dtype = np.dtype(dtype)
        self._nodes: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._included: list[Any] = []  # constants of the ONNX models that `include` added
        self._constants: dict[bytes, tuple[str, np.ndarray]] = {}
        self._domains: dict[str, int] = {"": OPSET}
        self._taken: set[str] = set()
        self._count = 0

    def input(self, name: str, dtype: Any, shape: Sequence[int | str]) -> Tensor:
        """Add an input to the graph. The dtype object means strings; a string in the shape names a variable length."""
        self._taken.add(name)
        self._inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape))
        return Tensor(self, name)

    def output(self, name: str, value: Tensor, dtype: Any, shape: Sequence[int | str | None]) -> None:
        """Add a tensor as a named output of the graph."""
        if name in self._taken:
            raise ValueError(f"a column has the name {name!r} of an output of the graph: rename the column and fit again")
        self._nodes.append(helper.make_node("Identity", [value.name], [name]))
        self._outputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape))

    def op(self, kind: str, *inputs: Any, **attributes: Any) -> Tensor:
        """Add an ONNX operator to the graph and return its first output."""
        output = self._name(kind.lower())
        # The operator TopK has a second output, the indices.
        outputs = [output, f"{output}_indices"] if kind == "TopK" else [output]
        self._nodes.append(helper.make_node(kind, [self._value_name(x) for x in inputs], outputs, **attributes))
        return Tensor(self, output)

    def concat(self, pieces: Sequence[Tensor]) -> Tensor:
        """Return the columns of several matrices as one matrix."""
        return pieces[0] if len(pieces) == 1 else self.op("Concat", *pieces, axis=1)

    def include(self, model: Any, x: Tensor) -> Tensor:
        """Add the nodes of an ONNX model, with x as its only input, and return the first output of the model."""
        part = compose.add_prefix(model, f"{self._name('part')}_")
        self._nodes += [helper.make_node("Identity", [x.name], [part.graph.input[0].name]), *part.graph.node]
        self._included += part.graph.initializer
        self._domains |= {one.domain: one.version for one in part.opset_import if one.domain}
        return Tensor(self, part.graph.output[0].name)

    def model(self, description: str) -> Any:
        """Return the finished and checked onnx.ModelProto."""
        constants = [numpy_helper.from_array(array, name) for name, array in self._constants.values()]
        graph = helper.make_graph(self._nodes, "gramless", self._inputs, self._outputs, constants + self._included)
        opsets = [helper.make_opsetid(domain, number) for domain, number in self._domains.items()]
        model = helper.make_model(graph, opset_imports=opsets, producer_name="gramless")
        model.ir_version = min(model.ir_version, _IR_VERSION)
        model.doc_string = description
        checker.check_model(model, full_check=True)
        return model

    def _value_name(self, x: Any) -> str:
        """Return the name of a tensor, or of the constant that contains an array or a number."""
        if isinstance(x, Tensor):
            return x.name
        array = np.asarray(x, order="C")
        if array.dtype.kind == "f":
            array = array.astype(self.dtype)
        content = repr(array.tolist()).encode() if array.dtype == object else array.tobytes()
        key = array.dtype.str.encode() + repr(array.shape).encode() + content
        if key not in self._constants:
            self._constants[key] = (self._name("constant"), array)
        return self._constants[key][0]

    def _name(self, stem: str) -> str:
        """Return a new name that begins with `stem` and that no input of the graph has."""
        self._count += 1
        name = f"{stem}_{self._count}"
        return self._name(stem) if name in self._taken else name
