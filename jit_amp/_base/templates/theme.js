"use strict";
const root = document.documentElement;
root.classList.toggle("dark", matchMedia("(prefers-color-scheme: dark)").matches);
document.getElementById("theme").onclick = () => root.classList.toggle("dark");
