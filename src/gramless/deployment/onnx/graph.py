"""A small builder of ONNX graphs: operators by name, NumPy arrays as constants.

    graph = Graph(np.float32)
    scores = graph.op("Add", graph.op("MatMul", "x", coef), intercept)

Arguments are names of values in the graph or NumPy arrays, which become initialisers; equal arrays are stored once. Only
operators of the ONNX standard are used, so any runtime that implements it can run the result.
"""

from __future__ import annotations

from typing import Any

import numpy as np

OPSET = 19

Value = str | np.ndarray | float | int


class Graph:
    """Nodes and constants of a graph that is being built.

    Parameters
    ----------
    dtype : dtype
        Of the numbers in the graph; Python numbers become constants of it.
    """

    def __init__(self, dtype: Any):
        self.dtype = np.dtype(dtype)
        self.nodes: list[Any] = []
        self.constants: dict[bytes, tuple[str, np.ndarray]] = {}
        self._count = 0

    def op(self, kind: str, *inputs: Value, **attributes: Any) -> str:
        """Add a node and return the name of its output.

        Parameters
        ----------
        kind : str
            The operator's name in the ONNX standard.
        *inputs : str, ndarray or number
        **attributes
            Of the operator.

        Returns
        -------
        str
        """
        from onnx import helper

        output = self._name(kind.lower())
        self.nodes.append(helper.make_node(kind, [self.value(x) for x in inputs], [output], **attributes))
        return output

    def smallest_first(self, x: Value, width: int) -> str:
        """The numbers of each row in ascending order.

        Parameters
        ----------
        x : str
            Of shape (n, width).
        width : int
            Numbers in a row.

        Returns
        -------
        str
            The name of the output.
        """
        from onnx import helper

        values, places = self._name("sorted"), self._name("places")
        inputs = [self.value(x), self.value(self.axes(width))]
        self.nodes.append(helper.make_node("TopK", inputs, [values, places], axis=1, largest=0, sorted=1))
        return values

    def value(self, x: Value) -> str:
        """The name of a value; an array becomes a constant.

        Parameters
        ----------
        x : str, ndarray or number

        Returns
        -------
        str
        """
        if isinstance(x, str):
            return x
        array = (
            np.asarray(x, dtype=self.dtype) if isinstance(x, (int, float)) else np.ascontiguousarray(x).reshape(np.shape(x))
        )
        content = repr(array.tolist()).encode() if array.dtype == object else array.tobytes()
        key = array.dtype.str.encode() + repr(array.shape).encode() + content
        if key not in self.constants:
            self.constants[key] = (self._name("constant"), array)
        return self.constants[key][0]

    def number(self, x: Any) -> np.ndarray:
        """An array in the dtype of the graph.

        Parameters
        ----------
        x : array-like

        Returns
        -------
        ndarray
        """
        return np.asarray(x, dtype=self.dtype)

    def axes(self, *axes: int) -> np.ndarray:
        """Axes as the integers that operators expect.

        Parameters
        ----------
        *axes : int

        Returns
        -------
        ndarray
        """
        return np.array(axes, dtype=np.int64)

    def cast(self, x: Value, dtype: Any) -> str:
        """A value in another type.

        Parameters
        ----------
        x : str, ndarray or number
        dtype : dtype

        Returns
        -------
        str
        """
        from onnx import helper

        return self.op("Cast", x, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def model(self, inputs: list[Any], outputs: list[Any], description: str) -> Any:
        """The finished model, checked.

        Parameters
        ----------
        inputs, outputs : list of onnx.ValueInfoProto
        description : str

        Returns
        -------
        onnx.ModelProto
        """
        import onnx
        from onnx import helper, numpy_helper

        constants = [numpy_helper.from_array(array, name) for name, array in self.constants.values()]
        graph = helper.make_graph(self.nodes, "gramless", inputs, outputs, constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="gramless")
        model.ir_version = min(model.ir_version, 9)  # what runtimes that know this operator set understand
        model.doc_string = description
        onnx.checker.check_model(model, full_check=True)
        return model

    def _name(self, stem: str) -> str:
        self._count += 1
        return f"{stem}_{self._count}"
