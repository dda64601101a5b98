"""Pictures of the page that `jit-amp explain` writes: see scripts/pictures."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from selenium import webdriver

ROOT = Path(__file__).parents[1]
COMMAND = [
    "explain", "vit:ViT", "--input", "float32[1,3,224,224]", "--numerics", "--timing",
    "--html", "vit.html",
]  # fmt: skip
SIZES = {"explain": (1280, 1000), "explain-dark": (1280, 1000), "explain-phone": (400, 900)}


def picture(page: Path, size: tuple[int, int], is_dark: bool) -> Image.Image:
    """The upper part of a page."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(argument)
    service = webdriver.ChromeService(shutil.which("chromedriver") or "")
    browser = webdriver.Chrome(options=options, service=service)
    try:
        width, height = size
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        browser.get(page.as_uri())
        return Image.open(io.BytesIO(browser.get_screenshot_as_png()))
    finally:
        browser.quit()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(ROOT / "examples" / "explained" / "vit.py", folder)
        command = [Path(sys.executable).with_name("jit-amp"), *COMMAND]
        subprocess.run(command, cwd=folder, check=True, env={**os.environ, "COLUMNS": "100"})
        for name, size in SIZES.items():
            made = picture(Path(folder) / "vit.html", size, name.endswith("dark"))
            made.convert("RGB").quantize(128).save(ROOT / "docs" / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
