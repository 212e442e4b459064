"""Builder of ONNX graphs: operators by name, NumPy arrays as constants.

    graph = Graph(np.float32)
    scores = graph.op("Add", graph.op("MatMul", "x", coef), intercept)

Arguments are names of values in the graph or NumPy arrays, which become initialisers; equal arrays are stored once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

OPSET = 19
# IR version of ONNX 1.14, which runtimes with this operator set support.
_IR_VERSION = 9

Value = str | np.ndarray | float | int


class Graph:
    """Nodes and constants of a graph under construction; Python numbers become constants of its dtype."""

    def __init__(self, dtype: Any):
        self.dtype = np.dtype(dtype)
        self.nodes: list[Any] = []
        self._constants: dict[bytes, tuple[str, np.ndarray]] = {}
        self._domains: dict[str, int] = {"": OPSET}
        self._count = 0

    def op(self, kind: str, *inputs: Value, **attributes: Any) -> str:
        """Add an operator of the ONNX standard and return the name of its output."""
        from onnx import helper

        output = self._name(kind.lower())
        self.nodes.append(helper.make_node(kind, [self.value(x) for x in inputs], [output], **attributes))
        return output

    def value(self, x: Value) -> str:
        """Return the name of a value; an array or a number becomes a constant."""
        if isinstance(x, str):
            return x
        array = np.asarray(x, dtype=self.dtype if isinstance(x, (int, float)) else None, order="C")
        content = repr(array.tolist()).encode() if array.dtype == object else array.tobytes()
        key = array.dtype.str.encode() + repr(array.shape).encode() + content
        if key not in self._constants:
            self._constants[key] = (self._name("constant"), array)
        return self._constants[key][0]

    def number(self, x: Any) -> np.ndarray:
        """Return an array in the dtype of the graph."""
        return np.asarray(x, dtype=self.dtype)

    def axes(self, *axes: int) -> np.ndarray:
        """Return axes or indices in the integer type that operators expect."""
        return np.array(axes, dtype=np.int64)

    def cast(self, x: Value, dtype: Any) -> str:
        """Return a value in another type."""
        from onnx import helper

        return self.op("Cast", x, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def column(self, x: str, index: int) -> str:
        """Return one column of a matrix, of shape (n, 1)."""
        return self.op("Gather", x, self.axes(index), axis=1)

    def concat(self, pieces: list[str]) -> str:
        """Return matrices side by side."""
        return pieces[0] if len(pieces) == 1 else self.op("Concat", *pieces, axis=1)

    def row_sums(self, x: str) -> str:
        """Return the sums of the rows, of shape (n, 1)."""
        return self.op("ReduceSum", x, self.axes(1), keepdims=1)

    def sorted_rows(self, x: str, width: int) -> str:
        """Return the values of each row of a matrix with `width` columns in ascending order."""
        from onnx import helper

        values, places = self._name("sorted"), self._name("places")
        inputs = [self.value(x), self.value(self.axes(width))]
        self.nodes.append(helper.make_node("TopK", inputs, [values, places], axis=1, largest=0, sorted=1))
        return values

    def include(self, model: Any, x: str) -> str:
        """Add the nodes of an ONNX model with one input, which is x, and return the name of its first output."""
        from onnx import AttributeProto, NodeProto, numpy_helper

        prefix = self._name("part")
        names = {model.graph.input[0].name: x, "": ""}
        names |= {part.name: self.value(numpy_helper.to_array(part)) for part in model.graph.initializer}
        for node in model.graph.node:
            if any(attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for attribute in node.attribute):
                raise ValueError(f"the operator {node.op_type} contains a subgraph")
            copied = NodeProto()
            copied.CopyFrom(node)
            copied.name = f"{prefix}_{node.name}"
            for group in (copied.input, copied.output):
                group[:] = [names.get(name, f"{prefix}_{name}") for name in group]
            self.nodes.append(copied)
        self._domains |= {one.domain: one.version for one in model.opset_import if one.domain}
        output = model.graph.output[0].name
        return names.get(output, f"{prefix}_{output}")

    def model(self, inputs: list[Any], outputs: list[Any], description: str) -> Any:
        """Return the finished and checked onnx.ModelProto."""
        import onnx
        from onnx import helper, numpy_helper

        constants = [numpy_helper.from_array(array, name) for name, array in self._constants.values()]
        graph = helper.make_graph(self.nodes, "gramless", inputs, outputs, constants)
        opsets = [helper.make_opsetid(domain, number) for domain, number in self._domains.items()]
        model = helper.make_model(graph, opset_imports=opsets, producer_name="gramless")
        model.ir_version = min(model.ir_version, _IR_VERSION)
        model.doc_string = description
        onnx.checker.check_model(model, full_check=True)
        return model

    def _name(self, stem: str) -> str:
        self._count += 1
        return f"{stem}_{self._count}"
