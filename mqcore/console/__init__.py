"""The console: pages for operators, ``mqcore console``. Needs the extra ``console`` (starlette, uvicorn, jinja2).

``views`` are pages, one module a family; ``data`` are what they show, typed and without HTTP, asked through
``mqcore.client.admin`` alone. ``guard`` stands before every page, ``sessions`` know who may see and change.
"""
