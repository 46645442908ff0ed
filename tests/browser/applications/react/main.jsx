import { useEffect, useState } from "react";
import { createRoot } from "react-dom/client";
import { BrowserRouter, Link, Route, Routes, useParams } from "react-router-dom";

function useData(name) {
  const [data, setData] = useState(null);
  useEffect(() => {
    fetch(`/data/${name}.json`).then((response) => response.json()).then(setData);
  }, [name]);
  return data;
}

function useTitle(title) {
  useEffect(() => {
    if (title) document.title = title;
  }, [title]);
}

function Home() {
  useTitle("Home");
  return <p>All the things there are.</p>;
}

function About() {
  useTitle("About");
  return <p>Made with a framework.</p>;
}

function List() {
  const { number } = useParams();
  const list = useData(`list-${number}`);
  useTitle(list?.title);
  return <ul>{list?.things.map((id) => <li key={id}><Link to={`/thing/${id}`}>Thing {id}</Link></li>)}</ul>;
}

function Thing() {
  const { id } = useParams();
  const thing = useData(`thing-${id}`);
  useTitle(thing?.title);
  return thing && <article><h1>{thing.title}</h1><p>{thing.text}</p></article>;
}

createRoot(document.getElementById("root")).render(
  <BrowserRouter>
    <nav><Link to="/">Home</Link> <Link to="/about">About</Link> <Link to="/list/1">First</Link> <Link to="/list/2">Second</Link></nav>
    <Routes>
      <Route path="/" element={<Home />} />
      <Route path="/about" element={<About />} />
      <Route path="/list/:number" element={<List />} />
      <Route path="/thing/:id" element={<Thing />} />
    </Routes>
  </BrowserRouter>,
);
