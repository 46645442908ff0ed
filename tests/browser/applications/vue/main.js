import { createApp } from "vue";
import { createRouter, createWebHistory } from "vue-router";
import App from "./App.vue";
import List from "./List.vue";
import Thing from "./Thing.vue";

const Home = { render: () => "All the things there are.", mounted: () => (document.title = "Home") };
const About = { render: () => "Made with a framework.", mounted: () => (document.title = "About") };
const routes = [
  { path: "/", component: Home },
  { path: "/about", component: About },
  { path: "/list/:number", component: List },
  { path: "/thing/:id", component: Thing },
];

createApp(App).use(createRouter({ history: createWebHistory(), routes })).mount("#app");
