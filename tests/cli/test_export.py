"""`gramless export` writes a file that onnxruntime runs, or reports an error."""

import numpy as np
import onnxruntime
import pandas as pd

import gramless


def test_exported_model_gives_the_same_predictions(run, plants, model, tmp_path):
    done = run("export", model, tmp_path / "m.onnx", "--json")
    assert done.code == 0, done.err
    assert done.json["inputs"] == {"height": "double", "leaves": "double", "soil": "string", "sheltered": "string"}
    assert set(done.json["outputs"]) == {"label", "scores", "probabilities"}
    frame = pd.read_csv(plants / "more.csv")
    rows = {name: frame[name].to_numpy(dtype=np.float64)[:, None] for name in ("height", "leaves")}
    for name in ("soil", "sheltered"):
        rows[name] = frame[name].fillna("").astype(str).to_numpy(dtype=object)[:, None]
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    label, chances = session.run(["label", "probabilities"], rows)
    loaded = gramless.load(model)
    np.testing.assert_allclose(chances, loaded.predict_proba(frame), atol=1e-5)
    assert label.tolist() == loaded.predict(frame).tolist()


def test_export_of_an_unsupported_model_raises(run, tmp_path):
    model = gramless.SphericalKMeans(2, random_state=0).fit(np.random.default_rng(0).normal(size=(20, 3)))
    gramless.save(model, tmp_path / "m.skops")
    done = run("export", tmp_path / "m.skops", tmp_path / "m.onnx")
    assert done.code == 3
    assert "SphericalKMeans cannot be written as ONNX operators" in done.err
    assert not (tmp_path / "m.onnx").exists()
    assert run("export", tmp_path / "m.skops", tmp_path / "m.skops").code == 3
