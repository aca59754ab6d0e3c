"""How a build reaches package indexes is read off the machine, and given to docker as secrets alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from scripts.containers import fetching


def test_variables_of_indexes_and_proxies_and_no_others() -> None:
    given = {
        "UV_DEFAULT_INDEX": "https://index.invalid/simple",
        "UV_INDEX_OURS_PASSWORD": "p",
        "HTTPS_PROXY": "http://proxy.invalid",
        "no_proxy": "localhost",
        "UV_CACHE_DIR": "/x",
        "HOME": "/root",
        "PIP_FIND_LINKS": "/wheels",
        "PIP_TRUSTED_HOST": "",
    }
    assert set(fetching.variables(given)) == {
        "UV_DEFAULT_INDEX", "UV_INDEX_OURS_PASSWORD", "HTTPS_PROXY", "no_proxy"
    }  # fmt: skip


def test_uv_is_told_of_the_index_that_pip_has() -> None:
    assert fetching.variables({"PIP_INDEX_URL": "https://a.invalid"})["UV_DEFAULT_INDEX"] == "https://a.invalid"
    own = fetching.variables({"PIP_INDEX_URL": "https://a.invalid", "UV_INDEX_URL": "https://b.invalid"})
    assert "UV_DEFAULT_INDEX" not in own


def test_the_first_bundle_that_exists(tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.write_text("")
    found = fetching.files({"SSL_CERT_FILE": str(tmp_path / "gone.pem"), "REQUESTS_CA_BUNDLE": str(bundle)})
    assert found["ca"] == bundle
    assert "ca" not in fetching.files({})


def test_the_options_name_files_and_hold_no_value(tmp_path: Path) -> None:
    configuration = tmp_path / "pip.conf"
    configuration.write_text("[global]\n")
    environ = {"UV_DEFAULT_INDEX": "https://user:it's secret@index.invalid", "PIP_CONFIG_FILE": str(configuration)}
    with fetching.secrets(environ) as options:
        assert "secret@" not in " ".join(options)
        sources = dict(part.removeprefix("id=").split(",src=") for part in options[1::2])
        assert sources["pip"] == str(configuration)
        shell = f'. "{sources["environ"]}"; printf %s "$UV_DEFAULT_INDEX"'
        said = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=True).stdout
        assert said == environ["UV_DEFAULT_INDEX"]
        assert Path(sources["environ"]).stat().st_mode & 0o077 == 0
    assert not Path(sources["environ"]).exists()


FETCH = Path(__file__).resolve().parents[3] / "images" / "fetch.sh"


@pytest.mark.parametrize("given", [True, False])
def test_a_step_runs_with_what_was_given(tmp_path: Path, given: bool) -> None:
    """images/fetch.sh, with its folder of secrets elsewhere."""
    script = tmp_path / "fetch"
    script.write_text(FETCH.read_text().replace("/run/secrets", str(tmp_path / "secrets")))
    script.chmod(0o755)
    if given:
        (tmp_path / "secrets").mkdir()
        (tmp_path / "secrets" / "environ").write_text("UV_DEFAULT_INDEX='https://index.invalid'\n")
        (tmp_path / "secrets" / "ca").write_text("certificates")
        (tmp_path / "secrets" / "pip").write_text("")
    shell = 'echo "${UV_DEFAULT_INDEX-}|${SSL_CERT_FILE-}|${PIP_CONFIG_FILE-}"'
    done = subprocess.run([script, "sh", "-c", shell], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True)
    assert done.stdout == (f"https://index.invalid|{tmp_path}/secrets/ca|\n" if given else "||\n")
