"""Langfuse, with an image in a question and one in the result of a tool."""

from __future__ import annotations

from base64 import b64decode, b64encode
from pathlib import Path

from langfuse import get_client
from langfuse.media import LangfuseMedia

PNG = b64decode((Path(__file__).parent / "chart.png.base64").read_text())
langfuse = get_client()
url = f"data:image/png;base64,{b64encode(PNG).decode()}"
question = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]
with langfuse.start_as_current_observation(name="reader", as_type="agent", input="Read the chart."):
    with langfuse.start_as_current_observation(name="chat", as_type="generation", input=question, model="m") as span:
        span.update(output={"role": "assistant", "content": "Sunny at 31 degrees. Eat brown cheese."})
    with langfuse.start_as_current_observation(name="draw", as_type="tool", input={}) as span:
        span.update(output={"image": LangfuseMedia(content_bytes=PNG, content_type="image/png")})
langfuse.flush()
print("Sunny at 31 degrees. Eat brown cheese.")
