import { svelte } from "@sveltejs/vite-plugin-svelte";
import vue from "@vitejs/plugin-vue";

export default {
  plugins: [vue(), svelte({ configFile: false })],
  esbuild: { jsx: "automatic", tsconfigRaw: { compilerOptions: { experimentalDecorators: true, useDefineForClassFields: false } } },
  build: { chunkSizeWarningLimit: 2000 },
};
